package proxmox_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/image"
	"talos-proxmox/lab/proxmox"
)

const (
	token    = "root@pam!lab=secret"
	password = "hunter2"
)

type lab struct {
	dc   *datacentre.Datacentre
	url  string
	http *http.Client
}

// newLab serves a data centre of two hosts on a loopback port. Its hours pass in milliseconds.
func newLab(t *testing.T) *lab {
	t.Helper()

	return newLabWithRelease(t, datacentre.PVE9)
}

// newLabWithRelease is newLab with a release of Proxmox VE.
func newLabWithRelease(t *testing.T, release int) *lab {
	t.Helper()

	dc, err := datacentre.Open(datacentre.Options{
		Hosts: []datacentre.HostOptions{
			{
				Name: "pve1", Root: t.TempDir(), Cores: 8, MemoryMiB: 16384, Address: netip.MustParseAddr("127.30.0.11"),
				Gateway: netip.MustParseAddr("127.30.0.1"), DNS: []netip.Addr{netip.MustParseAddr("127.30.0.1")},
				PCI: []datacentre.PCIDevice{
					{Address: "0000:00:01.0", VendorID: "0x1022", DeviceID: "0x14db", Class: "0x060400", IOMMUGroup: 1},
					{
						Address: "0000:01:00.0", VendorID: "0x10de", DeviceID: "0x27b0", Class: "0x030000", IOMMUGroup: 13,
						Vendor: "NVIDIA Corporation", Device: "AD104GL [RTX 4000 SFF Ada Generation]",
						SubsystemVendor: "0x10de", SubsystemDevice: "0x16fa",
					},
				},
			},
			{Name: "pve2", Cores: 8, MemoryMiB: 16384},
		},
		Cluster: "lab", Release: release, Clock: datacentre.NewClock(10000), Durations: datacentre.DefaultDurations(),
		Fetch: func(context.Context, string) ([]byte, error) { return image.Image{OS: "talos"}.Encode(), nil },
	})
	require.NoError(t, err)

	dc.Put(datacentre.Users, "root@pam", datacentre.Config{"password": password})
	dc.Put(datacentre.Tokens, "root@pam!lab", datacentre.Config{"value": "secret", "privsep": "0"})

	server, err := proxmox.New(dc, proxmox.Options{Host: "pve1", Stats: proxmox.NewStats()})
	require.NoError(t, err)

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	served := make(chan error, 1)

	go func() { served <- server.Serve(ln) }()

	//nolint:gosec // the lab's own certificate
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}

	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, server.Close())
		require.NoError(t, <-served)
		require.NoError(t, dc.Close())
	})

	return &lab{
		dc: dc, url: "https://" + ln.Addr().String() + "/api2/json", http: &http.Client{Transport: transport},
	}
}

type answer struct {
	status int
	reason string
	data   any
	errors map[string]any
}

// call makes a request with the token; POST and PUT send a form.
func (l *lab) call(t *testing.T, method, path string, form url.Values) answer {
	t.Helper()

	req, err := http.NewRequestWithContext(t.Context(), method, l.url+path, strings.NewReader(form.Encode()))
	require.NoError(t, err)
	req.Header.Set("Authorization", "PVEAPIToken="+token)

	if len(form) > 0 {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}

	return l.do(t, req)
}

func (l *lab) do(t *testing.T, req *http.Request) answer {
	t.Helper()

	res, err := l.http.Do(req)
	require.NoError(t, err)

	defer func() { _ = res.Body.Close() }()

	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)

	var doc struct {
		Data   any            `json:"data"`
		Errors map[string]any `json:"errors"`
	}

	if len(b) > 0 {
		require.NoError(t, json.Unmarshal(b, &doc), string(b))
	}

	_, reason, _ := strings.Cut(res.Status, " ")

	return answer{status: res.StatusCode, reason: reason, data: doc.Data, errors: doc.Errors}
}

// task makes a call that starts a task, and returns the task's exit status.
func (l *lab) task(t *testing.T, method, path string, form url.Values) string {
	t.Helper()

	a := l.call(t, method, path, form)
	require.Equal(t, 200, a.status, a.reason)

	upid, ok := a.data.(string)
	require.True(t, ok)

	task, err := l.dc.WaitTask(t.Context(), upid)
	require.NoError(t, err)

	return task.ExitStatus
}

func form(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}

	return v
}
