package proxmoxve

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/image"
	"talos-proxmox/lab/proxmox"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const labRoot = "root@pam"

// labImage is the content of every URL.
var labImage = image.Image{OS: "talos", Version: "v1.12.6", Platform: "nocloud", Arch: "amd64"}

// newLab returns a data centre behind the lab's REST API, and its endpoint.
func newLab(t *testing.T) (*datacentre.Datacentre, string) {
	t.Helper()

	dc, err := datacentre.Open(datacentre.Options{
		Hosts: []datacentre.HostOptions{
			{Name: "pve1", Root: t.TempDir(), Cores: 16, MemoryMiB: 65536}, {Name: "pve2", Cores: 16, MemoryMiB: 65536},
		},
		Clock: datacentre.NewClock(10000), Durations: datacentre.DefaultDurations(), Cluster: "lab",
		Fetch: func(context.Context, string) ([]byte, error) { return bytes.Clone(labImage.Encode()), nil },
	})
	require.NoError(t, err)

	id, secret, _ := strings.Cut(strings.TrimPrefix(testToken, labRoot+"!"), "=")
	dc.Put(datacentre.Users, labRoot, datacentre.Config{"password": "a password"})
	dc.Put(datacentre.Tokens, labRoot+"!"+id, datacentre.Config{"value": secret, "privsep": "0"})

	server, err := proxmox.New(dc, proxmox.Options{Host: "pve1", Stats: proxmox.NewStats()})
	require.NoError(t, err)

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	var served sync.WaitGroup

	served.Go(func() { assert.NoError(t, server.Serve(ln)) })
	t.Cleanup(func() {
		server.Close()
		served.Wait()
		require.NoError(t, dc.Close())
	})

	return dc, "https://" + ln.Addr().String() + "/"
}

func addTemplate(t *testing.T, dc *datacentre.Datacentre) {
	t.Helper()

	done := func(upid string, err error) {
		t.Helper()
		require.NoError(t, err)

		task, err := dc.WaitTask(t.Context(), upid)
		require.NoError(t, err)
		require.Equal(t, "OK", task.ExitStatus)
	}

	done(
		dc.Download(
			labRoot, "pve1", "local",
			datacentre.Config{"url": "https://factory.test/talos.img", "content": "iso", "filename": "base.img"},
		),
	)
	done(dc.CreateVM(labRoot, "pve1", 900, datacentre.Config{
		"name":     "talos",
		"memory":   "2048",
		"machine":  "q35",
		"bios":     "ovmf",
		"efidisk0": "local-lvm:1,efitype=4m",
		"net0":     "virtio,bridge=vmbr0",
		"scsihw":   "virtio-scsi-pci",
		"scsi0":    "local-lvm:0,import-from=/var/lib/vz/template/iso/base.img",
		"boot":     "order=scsi0",
	}))
	done(dc.ResizeDisk(labRoot, "pve1", 900, datacentre.Config{"disk": "scsi0", "size": "10G"}))
	done(dc.ConvertToTemplate(labRoot, "pve1", 900))
}

const (
	testPoll  = time.Millisecond
	testToken = "root@pam!test=00000000-0000-0000-0000-000000000001"
)

// testProvider is a configured provider.
type testProvider struct {
	t *testing.T
	p p.Provider
}

func newTestProvider(t *testing.T, endpoint string) testProvider {
	t.Helper()

	r := testProvider{t, Provider(testPoll, nil)}
	require.NoError(t, r.p.Configure(t.Context(), p.ConfigureRequest{Args: property.NewMap(map[string]property.Value{
		"endpoint": property.New(endpoint), "apiToken": property.New(testToken), "insecure": property.New("true"),
	})}))

	return r
}

func urn(token string) resource.URN {
	return resource.URN("urn:pulumi:dev::test::" + token + "::node")
}

func (r testProvider) check(token string, in object) property.Map {
	r.t.Helper()

	resp, err := r.p.Check(
		r.t.Context(), p.CheckRequest{Urn: urn(token), Inputs: toProperties(in)},
	)
	require.NoError(r.t, err)
	require.Empty(r.t, resp.Failures)

	return resp.Inputs
}

func (r testProvider) create(token string, in object) (p.CreateResponse, error) {
	r.t.Helper()

	return r.p.Create(r.t.Context(), p.CreateRequest{Urn: urn(token), Properties: r.check(token, in)})
}

func (r testProvider) diff(token string, in object, state property.Map, ignore ...string) map[string]p.DiffKind {
	r.t.Helper()

	resp, err := r.p.Diff(
		r.t.Context(), p.DiffRequest{Urn: urn(token), Inputs: r.check(token, in), State: state, IgnoreChanges: ignore},
	)
	require.NoError(r.t, err)

	out := map[string]p.DiffKind{}
	for path, d := range resp.DetailedDiff {
		out[path] = d.Kind
	}

	require.Equal(r.t, len(out) > 0, resp.HasChanges)

	return out
}

func toProperties(in object) property.Map {
	return attributes{}.toMap(in, nil)
}

const ignoredSpeed = "disks[0].speed"

func (r testProvider) read(token, id string, in object, state property.Map) p.ReadResponse {
	r.t.Helper()

	resp, err := r.p.Read(
		r.t.Context(), p.ReadRequest{ID: id, Urn: urn(token), Properties: state, Inputs: r.check(token, in)},
	)
	require.NoError(r.t, err)

	return resp
}

func (r testProvider) change(token, id string, in object, state property.Map) (property.Map, error) {
	r.t.Helper()

	resp, err := r.p.Update(
		r.t.Context(),
		p.UpdateRequest{
			ID: id, Urn: urn(token), State: state, Inputs: r.check(token, in), IgnoreChanges: []string{ignoredSpeed},
		},
	)

	return resp.Properties, err
}
