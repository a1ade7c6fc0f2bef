package components

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/vmlookup"
)

// invalidCase is a change that makes valid arguments invalid, and a part of the expected error.
type invalidCase[A any] struct {
	change    func(*A)
	wantError string
}

// assertRefused expects an error and no resource for each invalid case.
func assertRefused[A, C any](
	t *testing.T, args func() A, construct func(*pulumi.Context, string, A, ...pulumi.ResourceOption) (C, error),
	refusals map[string]invalidCase[A],
) {
	t.Helper()

	for name, test := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			changed := args()
			test.change(&changed)

			r, err := enginetest.Run(enginetest.Options{}, func(ctx *pulumi.Context) error {
				_, err := construct(ctx, "one", changed)

				return err
			})
			require.ErrorContains(t, err, test.wantError)
			assert.Empty(t, r.All(), "nothing is registered")
		})
	}
}

// plannedTemplate returns the template of class talos on a host.
func plannedTemplate(host string) GoldenTemplateArgs {
	t := scriptTemplate()
	t.Host, t.VMID = host, 900+int(host[len(host)-1]-'0')

	return t
}

func plannedNetwork() Network {
	return Network{CIDR: netip.MustParsePrefix("127.1.1.0/24"), Gateway: netip.MustParseAddr("127.1.1.1"), Bridge: "vmbr0", DNS: []netip.Addr{netip.MustParseAddr("127.1.1.1")}}
}

func plannedNode(role string, index int, host string) ClusterNode {
	pool, vmid, last := "cp", 2000, 10
	if role == RoleWorker {
		pool, vmid, last = "general", 3000, 20
	}

	return ClusterNode{
		Name: fmt.Sprintf("one-%s-%d", pool, index+1), Role: role,
		Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 1, 1, byte(last + index)}), 24),
		Talos:   *plannedTemplate(host).Talos,
		Machine: Machine{
			Host: host, VMID: vmid + index, MAC: fmt.Sprintf("02:00:00:00:%02x:%02x", last, index),
			Cores: 2, Memory: 4096, DiskSize: 40, Datastore: "local-lvm", CPUType: "host", Tags: []string{"talos"},
		},
	}
}

// plannedCluster distributes its nodes over pve1 and pve2.
func plannedCluster(controlPlanes, workers int) TalosClusterArgs {
	a := TalosClusterArgs{
		Name:              "one",
		Endpoint:          "https://127.1.1.5:6443",
		VIP:               netip.MustParseAddr("127.1.1.5"),
		TalosVersion:      "v1.12.6",
		KubernetesVersion: "v1.35.0",
		Network:           plannedNetwork(),
	}
	for i := range controlPlanes {
		a.Nodes = append(a.Nodes, plannedNode(RoleControlPlane, i, fmt.Sprintf("pve%d", 1+i%2)))
	}

	for i := range workers {
		a.Nodes = append(a.Nodes, plannedNode(RoleWorker, i, fmt.Sprintf("pve%d", 1+i%2)))
	}

	return a
}

func (a TalosClusterArgs) controlPlane(i int) *ClusterNode { return &a.Nodes[i] }
func (a TalosClusterArgs) worker(i int) *ClusterNode       { return &a.Nodes[a.controlPlaneCount()+i] }

// templates registers the image and the templates, and returns them; the templates by host.
func templates(ctx *pulumi.Context, all ...GoldenTemplateArgs) (*TalosImage, map[string]*GoldenTemplate, error) {
	args := TalosImageArgs{Talos: *all[0].Talos, Source: all[0].Source}
	for _, t := range all {
		args.Stores = append(args.Stores, ImageStore{Host: t.Host, Datastore: t.ImageDatastore})
	}

	image, err := NewTalosImage(ctx, "image", args)
	if err != nil {
		return nil, nil, err
	}

	byHost := map[string]*GoldenTemplate{}

	for _, t := range all {
		t.Image = image.VolumeID(t.Host, t.ImageDatastore)

		if t.Shell == nil {
			t.Shell = &HostShell{Address: netip.MustParseAddr("127.1.0.11"), HostKey: "ssh-ed25519 AAAA"}
		}

		if byHost[t.Host], err = NewGoldenTemplate(ctx, "talos-"+t.Host, t); err != nil {
			return nil, nil, err
		}
	}

	return image, byHost, nil
}

// withGPUs returns a node with mapped GPUs and their driver.
func withGPUs(n ClusterNode, gpus ...GPU) ClusterNode {
	for i := range gpus {
		gpus[i].Host = n.Machine.Host
	}

	n.GPUs, n.Driver = gpus, "open production"

	return n
}

// runCluster registers a cluster with its image and templates.
func runCluster(t *testing.T, o enginetest.Options, cluster TalosClusterArgs) *enginetest.Recorder {
	t.Helper()

	return runKnownCluster(t, o, cluster, vmlookup.Run{})
}

// runKnownCluster is runCluster with knowledge of the running machines.
func runKnownCluster(
	t *testing.T, o enginetest.Options, cluster TalosClusterArgs, known vmlookup.Run,
) *enginetest.Recorder {
	t.Helper()

	r, err := enginetest.Run(o, func(ctx *pulumi.Context) error {
		image, byHost, err := templates(ctx, plannedTemplate("pve1"), plannedTemplate("pve2"))
		if err != nil {
			return err
		}

		for i := range cluster.Nodes {
			machine := &cluster.Nodes[i].Machine
			machine.Template = byHost[machine.Host].VMID
		}

		cluster.Schematics = pulumi.StringArray{image.SchematicID}
		_, err = NewTalosCluster(vmlookup.NewContext(ctx, known), cluster.Name, cluster)

		return err
	})
	require.NoError(t, err)

	return r
}
