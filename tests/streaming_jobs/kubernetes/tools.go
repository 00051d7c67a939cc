//go:build tools

// What a cluster is made of, by the modules that it comes from: nothing here is built into a program of ours.
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)
