package engine_test

import (
	"bytes"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/require"
)

// cluster is one cluster of a test's stack file.
type cluster struct {
	Name                             string
	ControlPlanes, Workers           int
	FirstControlPlane, FirstWorker   int // VMIDs
	FirstAddress, FirstWorkerAddress int // last byte
	VIP                              int // last byte; 0 = none
	Addressing                       string
	WorkerMemory, WorkerDisk         int
	WorkerYAML                       string // more YAML of the worker pool
	ControlPlaneHost                 string // the control planes' host; empty = any
	BootstrapEmpty                   string
	YAML                             string // more YAML of the cluster
}

// stack is a test's stack file.
type stack struct {
	Network  string
	Version  string
	Source   string
	Protect  bool
	OneHost  bool // pve1 alone
	Wide     bool // a /16 network, for more nodes than a lab has addresses
	Template int  // the template's first VMID; 0 = the default
	Clusters []cluster
}

// yaml renders the stack file.
func (s stack) yaml(t testing.TB) string {
	t.Helper()

	if s.Version == "" {
		s.Version = "v1.14.4"
	}

	if s.Source == "" {
		s.Source = "image"
	}

	for i := range s.Clusters {
		c := &s.Clusters[i]
		if c.Addressing == "" {
			c.Addressing = "static"
		}

		if c.WorkerMemory == 0 {
			c.WorkerMemory = 4096
		}

		if c.WorkerDisk == 0 {
			c.WorkerDisk = 20
		}
	}

	var b bytes.Buffer
	require.NoError(t, stackTemplate.Execute(&b, s))

	return b.String()
}

var stackTemplate = template.Must(template.New("stack").Parse(`config:
  talos-proxmox:protect: {{.Protect}}
  talos-proxmox:hosts:
    - {name: pve1, address: {{.Network}}.0.11}
{{- if not .OneHost}}
    - {name: pve2, address: {{.Network}}.0.12}
{{- end}}
  talos-proxmox:templates:
    talos: {version: {{.Version}}, source: {{.Source}}, datastore: local-lvm, extensions: [qemu-guest-agent]{{if .Template}}, firstVmid: {{.Template}}{{end}}}
  talos-proxmox:clusters:
{{- range .Clusters}}
    - name: {{.Name}}
      kubernetesVersion: v1.37.2
{{- with .YAML}}
      {{.}}
{{- end}}
{{- with .BootstrapEmpty}}
      bootstrapEmpty: {{.}}
{{- end}}
      network:
        cidr: {{if $.Wide}}{{$.Network}}.0.0/16{{else}}{{$.Network}}.1.0/24{{end}}
        gateway: {{$.Network}}.1.1
        bridge: vmbr0
        addressing: {{.Addressing}}
        dns: [{{$.Network}}.1.1]
{{- if .VIP}}
        vip: {{$.Network}}.1.{{.VIP}}
{{- end}}
      controlPlane: {count: {{.ControlPlanes}}, cores: 2, memoryMiB: 4096, diskGiB: 20, firstVmid: {{.FirstControlPlane}}, firstAddress: {{$.Network}}.1.{{.FirstAddress}}{{with .ControlPlaneHost}}, hosts: [{{.}}]{{end}}}
      workers:
        - name: general
          count: {{.Workers}}
          cores: 2
          memoryMiB: {{.WorkerMemory}}
          diskGiB: {{.WorkerDisk}}
          firstVmid: {{.FirstWorker}}
          firstAddress: {{$.Network}}.1.{{.FirstWorkerAddress}}
{{- if .WorkerYAML}}
          {{.WorkerYAML}}
{{- end}}
{{- end}}
`))

// clusterOne is the cluster of most tests.
func clusterOne(controlPlanes, workers int) cluster {
	return cluster{
		Name: "one", ControlPlanes: controlPlanes, Workers: workers,
		FirstControlPlane: 2000, FirstWorker: 3000, FirstAddress: 10, FirstWorkerAddress: 20, VIP: 5,
	}
}

// stack returns the stack file of cluster one.
func (w *world) stack(controlPlanes, workers int) stack {
	return stack{Network: w.network, Clusters: []cluster{clusterOne(controlPlanes, workers)}}
}

// upOne brings up cluster one, and returns its stack file.
func upOne(t testing.TB, controlPlanes, workers int) (*world, stack) {
	t.Helper()

	w := newWorld(t, testSpeed)
	s := w.stack(controlPlanes, workers)
	w.up(s.yaml(t))

	return w, s
}

// within bounds what a test waits for.
const within = 5 * time.Minute
