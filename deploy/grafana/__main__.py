"""Write the files that Grafana reads: `python -m deploy.grafana`."""

from deploy.grafana.files import FOLDER, made

for name, content in made().items():
    (FOLDER / name).write_text(content)
    print(f"deploy/grafana/{name}")
