package proxmox_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/proxmox"
)

func (l *lab) request(t *testing.T, method, path string, body []byte, headers map[string]string) answer {
	t.Helper()

	req, err := http.NewRequestWithContext(t.Context(), method, l.url+path, bytes.NewReader(body))
	require.NoError(t, err)

	for k, v := range headers {
		req.Header.Set(k, v)
	}

	return l.do(t, req)
}

func TestCredentials(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	login := l.call(t, "POST", "/access/ticket", form("username", "root", "realm", "pam", "password", password))
	require.Equal(t, 200, login.status)

	session, _ := login.data.(map[string]any)
	ticket, csrf := fmt.Sprint(session["ticket"]), fmt.Sprint(session["CSRFPreventionToken"])
	cookie := "PVEAuthCookie=" + ticket

	assert.Equal(t, "lab", session["clustername"])

	for name, tc := range map[string]struct {
		method  string
		headers map[string]string
		status  int
		reason  string
	}{
		"a token": {"POST", map[string]string{"Authorization": "PVEAPIToken=" + token}, 200, "OK"},
		"a token's wrong secret": {
			"GET", map[string]string{"Authorization": "PVEAPIToken=root@pam!lab=x"}, 401, "Authentication failed!",
		},
		"a token no one knows": {
			"GET", map[string]string{"Authorization": "PVEAPIToken=root@pam!x=x"}, 401, "Authentication failed!",
		},
		"a token of nobody": {
			"GET", map[string]string{"Authorization": "PVEAPIToken=a@pam!x=x"}, 401, "Authentication failed!",
		},
		"nothing":              {"GET", nil, 401, "No ticket"},
		"a ticket that reads":  {"GET", map[string]string{"Cookie": cookie}, 200, "OK"},
		"a ticket that writes": {"POST", map[string]string{"Cookie": cookie, "CSRFPreventionToken": csrf}, 200, "OK"},
		"a write without CSRF": {
			"POST", map[string]string{"Cookie": cookie}, 401, "Permission denied - invalid csrf token",
		},
		"a forged ticket": {
			"GET", map[string]string{"Cookie": cookie + "A"}, 401, "Authentication failed!",
		},
		"another kind of authority": {"GET", map[string]string{"Authorization": "Bearer x"}, 401, "No ticket"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			path := "/pools"
			if tc.method == "POST" {
				path += "?poolid=" + fmt.Sprintf("p%x", name)
			}

			a := l.request(t, tc.method, path, nil, tc.headers)
			assert.Equal(t, tc.status, a.status)
			assert.Equal(t, tc.reason, a.reason)
		})
	}

	bad := l.request(
		t, "POST", "/access/ticket", []byte(`{"username":"root@pam","password":"x"}`),
		map[string]string{"Content-Type": "application/json"},
	)
	assert.Equal(t, 401, bad.status)
	assert.Equal(t, "authentication failure", bad.reason)

	renewed := l.call(t, "POST", "/access/ticket", form("username", "root@pam", "password", ticket))
	assert.Equal(t, 200, renewed.status, "a ticket renews itself")
	assert.Equal(t, 200, l.request(t, "GET", "/access/domains", nil, nil).status, "realms are known to the world")
}

func TestJSONParameters(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	headers := map[string]string{"Authorization": "PVEAPIToken=" + token, "Content-Type": "application/json"}
	a := l.request(
		t, "POST", "/nodes/pve1/qemu", []byte(`{"vmid":100,"onboot":true,"cores":2,"name":"n","tags":null}`), headers,
	)
	require.Equal(t, 200, a.status, a.reason)

	upid, _ := a.data.(string)
	_, err := l.dc.WaitTask(t.Context(), upid)
	require.NoError(t, err)

	vm, _ := l.dc.VM(100)
	assert.Equal(t, "1", vm.Config["onboot"])
	assert.Equal(t, "2", vm.Config["cores"])
	assert.Equal(t, 400, l.request(t, "POST", "/nodes/pve1/qemu", []byte(`{`), headers).status)
	assert.Equal(t, 501, l.request(t, "POST", "/nodes/pve1/qemu", []byte(`x`), map[string]string{
		"Authorization": "PVEAPIToken=" + token, "Content-Type": "text/plain",
	}).status)
}

func TestConnectionsAreKeptAfterErrors(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	reused := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if i.Reused {
			reused++
		}
	}})

	for range 5 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url+"/nodes/pve1/qemu/100/config", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "PVEAPIToken="+token)
		assert.Equal(t, 500, l.do(t, req).status)
	}

	assert.Equal(t, 4, reused)
}

func TestFaults(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	add := func(f datacentre.Fault) int {
		id, err := l.dc.AddFault(f)
		require.NoError(t, err)

		return id
	}
	post := func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.url+"/pools?poolid=lab", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "PVEAPIToken="+token)

		res, err := l.http.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}

		return err
	}

	add(
		datacentre.Fault{
			Method:  "GET",
			Path:    "^/nodes$",
			Status:  500,
			Message: "cluster not ready - no quorum?",
			Times:   1,
			Delay:   time.Second,
		},
	)
	assert.Equal(t, "cluster not ready - no quorum?", l.call(t, "GET", "/nodes", nil).reason)
	assert.Equal(t, 200, l.call(t, "GET", "/nodes", nil).status)

	add(datacentre.Fault{Method: "POST", Path: "^/pools$", Reset: true, Times: 1})
	require.Error(t, post(), "interrupted before it was done")
	assert.Empty(t, l.dc.Pools())

	add(datacentre.Fault{Method: "POST", Path: "^/pools$", Reset: true, After: true, Times: 1})
	require.Error(t, post(), "interrupted after it was done")
	assert.Len(t, l.dc.Pools(), 1)

	id := add(datacentre.Fault{Host: "pve2", Offline: true})
	a := l.call(t, "GET", "/nodes/pve2/status", nil)
	assert.Equal(t, 595, a.status)
	assert.Equal(t, "No route to host", a.reason)
	assert.Contains(t, l.call(t, "GET", "/nodes", nil).raw, `"status":"offline"`)
	require.NoError(t, l.dc.ClearFaults(id))
	assert.Equal(t, 200, l.call(t, "GET", "/nodes/pve2/status", nil).status)

	add(datacentre.Fault{Host: "pve1", Offline: true})
	require.Error(t, post(), "the host that serves is away itself")
	require.NoError(t, l.dc.ClearFaults())
	assert.Equal(t, 200, l.call(t, "GET", "/nodes/pve1/status", nil).status)
}

func TestAnInjectedCASignsTheCertificate(t *testing.T) {
	t.Parallel()

	certificate, key, err := proxmox.NewCA()
	require.NoError(t, err)

	ca, err := tls.X509KeyPair(certificate, key)
	require.NoError(t, err)

	dc, err := datacentre.Open(datacentre.Options{Hosts: []datacentre.HostOptions{{Name: "pve1"}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dc.Close()) })

	server := proxmox.New(dc, proxmox.Options{CA: &ca, Names: []string{"127.0.0.1", "pve1.lab"}})

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	go func() { _ = server.Serve(ln) }()

	t.Cleanup(func() { require.NoError(t, server.Close()) })

	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(certificate))

	conn, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	assert.Equal(t, uint16(tls.VersionTLS13), conn.ConnectionState().Version)
	require.NoError(t, conn.Close())

	unusable := proxmox.New(dc, proxmox.Options{CA: &tls.Certificate{Certificate: ca.Certificate, PrivateKey: "no key"}})

	ln, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.ErrorContains(t, unusable.Serve(ln), "cannot sign")
}
