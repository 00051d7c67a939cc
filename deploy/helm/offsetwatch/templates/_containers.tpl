{{- define "offsetwatch.labels" -}}
app.kubernetes.io/name: offsetwatch
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "offsetwatch.selector" -}}
app.kubernetes.io/name: offsetwatch
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "offsetwatch.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* What every pod is: a user without rights, the configuration, a data folder, nothing of Kubernetes' own. */}}
{{- define "offsetwatch.pod" -}}
serviceAccountName: {{ .Release.Name }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: 60
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "offsetwatch.volumes" -}}
- name: config
  configMap: { name: {{ .Release.Name }} }
- name: tmp
  emptyDir: {}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* One container: `of` is "probes" or "monitor", `args` its command. */}}
{{- define "offsetwatch.container" -}}
{{- $process := index .root.Values .of -}}
- name: {{ .of }}
  image: {{ include "offsetwatch.image" .root | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args: {{ toJson .args }}
  env:
    - { name: OFFSETWATCH_CONFIG, value: /etc/offsetwatch/offsetwatch.toml }
    - { name: OFFSETWATCH_DATA, value: /data }
    - { name: OFFSETWATCH_ALERTS__METRICS_HOST, value: 0.0.0.0 }
    - { name: OFFSETWATCH_ALERTS__METRICS_PORT, value: {{ .root.Values.monitor.port | quote }} }
    - { name: OFFSETWATCH_ALERTS__PROBES_PORT, value: {{ .root.Values.probes.port | quote }} }
    {{- with .root.Values.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .root.Values.envFrom }}
  envFrom: {{ toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - { name: {{ .of }}, containerPort: {{ $process.port }} }
  # No readiness gates the metrics: what is not ready is what one wants to see.
  livenessProbe:
    httpGet: { path: /live, port: {{ .of }}, scheme: {{ ternary "HTTPS" "HTTP" (default false $process.tls) }} }
    initialDelaySeconds: 60
    periodSeconds: 20
    timeoutSeconds: 10
    failureThreshold: 6
  resources: {{ toYaml $process.resources | nindent 4 }}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: { drop: [ALL] }
  volumeMounts:
    - { name: data, mountPath: /data }
    - { name: tmp, mountPath: /tmp }
    - { name: config, mountPath: /etc/offsetwatch, readOnly: true }
    {{- with .root.Values.mounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
