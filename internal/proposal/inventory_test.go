package proposal_test

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/proposal"
	"talos-proxmox/internal/proxmoxapi"
)

// api answers by path; a text that begins with a digit is the status of an error.
type api map[string]string

// RoundTrip implements http.RoundTripper.
func (a api) RoundTrip(request *http.Request) (*http.Response, error) {
	body, known := a[strings.TrimPrefix(request.URL.RequestURI(), "/api2/json")]

	switch {
	case a["error"] != "":
		return nil, errors.New(a["error"])
	case !known:
		body = "404 no such path " + request.URL.RequestURI()
	}

	response := &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Request: request}
	if body[0] != '[' && body[0] != '{' {
		response.StatusCode, response.Status, body = int(body[0]-'0')*100+int(body[2]-'0'), body, ""
	}

	response.Body = io.NopCloser(strings.NewReader(`{"data":` + body + `}`))

	return response, nil
}

func read(t *testing.T, a api) (*proposal.Inventory, error) {
	t.Helper()

	const endpoint = "https://192.0.2.2:8006/"

	setting := func(key string) string {
		return map[string]string{"endpoint": endpoint, "apiToken": "root@pam!init=secret"}[key]
	}

	return proposal.Read(t.Context(), endpoint, proxmoxapi.NewMachines(setting, a))
}

func TestRead(t *testing.T) {
	t.Parallel()

	all := api{
		"/access/permissions":                `{"/":{"Sys.Audit":1,"Datastore.Audit":1,"SDN.Audit":1,"VM.Audit":1,"Mapping.Audit":1}}`,
		"/version":                           `{"release":"9.2"}`,
		"/nodes/localhost/certificates/info": `[{"filename":"pve-root-ca.pem","fingerprint":"0A:1B"}]`,
		"/nodes": `[{"node":"pve2","status":"offline"},
			{"node":"pve1","status":"online","maxcpu":16,"maxmem":68719476736}]`,
		"/cluster/status": `[{"type":"cluster","name":"pve1"},{"type":"node","name":"pve1","ip":"192.0.2.2"},
			{"type":"node","name":"pve2","ip":"192.0.2.3"}]`,
		"/cluster/resources?type=vm": `[{"type":"qemu","vmid":105,"name":"games","node":"pve1","status":"running","maxmem":4294967296}]`,
		"/nodes/pve1/qemu/105/config": `{"hostpci0":"0000:41:00,pcie=1","hostpci1":"mapping=card","net0":"virtio=02:00:00:00:00:01,bridge=vmbr0",
			"ipconfig0":"ip=192.0.2.30/24"}`,
		"/nodes/pve1/storage": `[{"storage":"local-lvm","type":"lvmthin","content":"images","active":1,"enabled":1,"avail":1073741824}]`,
		"/nodes/pve1/network?type=any_bridge": `[{"iface":"vmbr1","type":"bridge"},
			{"iface":"vmbr0","type":"bridge","cidr":"192.0.2.2/24","gateway":"192.0.2.1","bridge_vlan_aware":1}]`,
		"/nodes/pve1/dns": `{"dns1":"127.0.0.53","dns2":"192.0.2.1","dns3":"2001:db8::1","search":"example.org"}`,
		"/nodes/pve1/hardware/pci": `[
			{"id":"0000:01:00.0","class":"0x030000","vendor":"0x10de","device":"0x27b0","vendor_name":"NVIDIA Corporation",
				"device_name":"AD104GL [RTX 4000 SFF Ada Generation]"},
			{"id":"0000:01:00.1","class":"0x040300","vendor":"0x10de","device":"0x22bc"},
			{"id":"0000:05:00.0","class":"0x030000","vendor":"0x1a03","device":"0x2000"},
			{"id":"0000:41:00.0","class":"0x030200","vendor":"0x10de","device":"0x2b85"},
			{"id":"0001:61:00.0","class":"0x030000","vendor":"0x10de","device":"0x1b80","vendor_name":"NVIDIA Corporation",
				"device_name":"GP104 [GeForce GTX 1080]"}]`,
		"/cluster/mapping/pci": `[{"id":"card","map":["node=pve2,path=0000:01:00","id=10de:1b80,node=pve1,path=0001:61:00.0"]}]`,
	}

	i, err := read(t, all)
	require.NoError(t, err)
	require.Empty(t, i.Gaps)
	assert.Equal(t, "9.2 0A:1B", i.Release+" "+i.Cluster)
	require.Len(t, i.Hosts, 2)
	assert.False(t, i.Hosts[1].Online)

	h := i.Hosts[0]
	assert.Equal(t, "192.0.2.2", h.Address.String())
	assert.Equal(t, []int{16, 65536}, []int{h.Cores, h.MemoryMiB})
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.1")}, h.DNS, "neither a local resolver nor IPv6")
	assert.Equal(t, "192.0.2.1", h.Bridges[0].Gateway)
	assert.Equal(t, []proposal.GPU{
		{PCI: "01:00", Device: "10de:27b0", Name: "AD104GL [RTX 4000 SFF Ada Generation]", Generation: "ada"},
		{PCI: "41:00", Device: "10de:2b85", User: "VM 105 (games on pve1)"},
		{PCI: "0001:61:00", Device: "10de:1b80", Name: "GP104 [GeForce GTX 1080]", Generation: "pascal", User: "the PCI mapping card"},
	}, h.GPUs)
	assert.Equal(t, "192.0.2.30", i.Guests[0].Addresses[0].Address.String())

	// What is refused, or left out of lists, is named.
	few := api{}
	for path, answer := range all {
		few[path] = answer
	}

	few["/access/permissions"] = `{"/vms":{"VM.Audit":1}}`
	few["/cluster/status"] = "403 Permission check failed (/, Sys.Audit)"
	few["/nodes/pve1/hardware/pci"] = "403 Permission check failed (/, Sys.Audit|Sys.Modify)"
	few["/nodes/pve1/dns"] = "500 got timeout"

	i, err = read(t, few)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"PCI mappings beyond those that the credentials may see: needs Mapping.Audit on /mapping/pci",
		"bridges beyond those that the credentials may see: needs SDN.Audit on /sdn/zones/localnetwork",
		"cores and memory of hosts beyond those that the credentials may see: needs Sys.Audit on /nodes",
		"storages beyond those that the credentials may see: needs Datastore.Audit on /storage",
		"the GPUs of pve1: needs Sys.Audit or Sys.Modify on /",
		"the addresses of hosts: needs Sys.Audit on /",
		"the name servers of pve1: Proxmox answers 500 got timeout",
	}, i.Gaps)

	for answer, want := range map[string]string{
		"401 authentication failure": "https://192.0.2.2:8006/ refuses the credentials (Proxmox answers 401 authentication failure): compare",
		"500 broken":                 "unable to read Proxmox at https://192.0.2.2:8006/: Proxmox answers 500 broken. What to do: is that the address",
	} {
		_, err = read(t, api{"/access/permissions": answer})
		require.ErrorContains(t, err, want)
	}

	_, err = read(t, api{"error": "tls: failed to verify certificate: x509: certificate signed by unknown authority"})
	require.ErrorContains(t, err, "name the copy in SSL_CERT_FILE (docs/trust.md)")
}
