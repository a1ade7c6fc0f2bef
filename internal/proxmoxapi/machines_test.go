package proxmoxapi_test

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/proxmoxapi"
)

func machine(t *testing.T, config string) proxmoxapi.Machine {
	t.Helper()

	var m proxmoxapi.Machine
	require.NoError(t, json.Unmarshal([]byte(config), &m.Config))

	return m
}

func TestGenerationsOfMachines(t *testing.T) {
	t.Parallel()

	for config, want := range map[string]string{
		`{"vmgenid": "a", "smbios1": "uuid=b"}`: "a",
		`{"vmgenid": "0", "smbios1": "uuid=b"}`: "uuid=b", // switched off
		`{"smbios1": "uuid=b"}`:                 "uuid=b",
		`{}`:                                    "",
	} {
		assert.Equal(t, want, machine(t, config).Generation(), config)
	}
}

func TestSizesOfDisks(t *testing.T) {
	t.Parallel()

	m := machine(t, `{"scsi0": "local-lvm:vm-1-disk-0,iothread=1,size=20G", "scsi1": "a:b,size=512M", "scsi2": "a:b,size=1025M", "virtio1": "a:b,size=2T", "ide2": "none,media=cdrom", "cores": 2}`)
	for place, want := range map[string]int{"scsi0": 20, "scsi1": 1, "scsi2": 2, "virtio1": 2048, "ide2": math.MaxInt} {
		size, found := m.DiskGiB(place)
		assert.True(t, found, place)
		assert.Equal(t, want, size, place)
	}

	_, found := m.DiskGiB("scsi7")
	assert.False(t, found)
	assert.Equal(t, 2, m.Number("cores"))
	assert.Zero(t, m.Number("scsi0"))
}

func TestOptionsOfDevices(t *testing.T) {
	t.Parallel()

	m := machine(t, `{"net0": "virtio=02:00:00:00:00:01,bridge=vmbr0,tag=7", "hostpci0": "0000:01:00,pcie=1"}`)
	for option, want := range map[string]string{"bridge": "vmbr0", "tag": "7", "mtu": ""} {
		is, found := m.Option("net0", option)
		assert.True(t, found)
		assert.Equal(t, want, is, option)
	}

	_, found := m.Option("net1", "bridge")
	assert.False(t, found)
	_, found = m.Option("hostpci0", "")
	assert.True(t, found)
}

// proxmox answers by path and records requests.
type proxmox struct {
	mu       sync.Mutex
	answers  map[string]string
	requests []string
	down     error
}

// RoundTrip implements http.RoundTripper.
func (p *proxmox) RoundTrip(request *http.Request) (*http.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	path := strings.TrimPrefix(request.URL.Path, "/api2/json")

	p.requests = append(p.requests, path)
	if p.down != nil {
		return nil, p.down
	}

	response := httptest.NewRecorder()
	if answer, ok := p.answers[path]; ok {
		_, _ = response.WriteString(`{"data": ` + answer + `}`)
	} else {
		http.Error(
			response, "Configuration file 'nodes/pve1/qemu-server/3000.conf' does not exist", http.StatusInternalServerError,
		)
	}

	result := response.Result()
	if result.StatusCode != http.StatusOK {
		result.Status = "500 Configuration file 'nodes/pve1/qemu-server/3000.conf' does not exist"
	}

	return result, nil
}

func setting(key string) string {
	return map[string]string{"endpoint": "https://pve.test:8006/", "apiToken": "pulumi@pve!t=uuid"}[key]
}

func TestFindFollowsAMachineThatWasMoved(t *testing.T) {
	t.Parallel()

	p := &proxmox{answers: map[string]string{
		"/cluster/resources":           `[{"vmid": 3000, "node": "pve2", "status": "running"}, {"vmid": 3001, "node": "pve2", "status": "stopped"}]`,
		"/nodes/pve2/qemu/3000/config": `{"name": "one", "memory": "4096"}`,
		"/nodes/pve2/qemu/3001/config": `{"name": "two"}`, "/nodes/pve2/qemu/3001/status/current": `{"status": "running"}`,
	}}
	all := proxmoxapi.NewMachines(setting, p)

	moved, err := all.Find(t.Context(), "pve1", 3000)
	require.NoError(t, err)
	assert.Equal(t, "pve2", moved.Host)
	assert.Equal(t, 4096, moved.Number("memory"))
	assert.False(t, moved.Stopped)

	started, err := all.Find(t.Context(), "pve2", 3001)
	require.NoError(t, err)
	assert.False(t, started.Stopped, "it was started after the list was read")

	_, err = all.Find(t.Context(), "pve1", 4711)
	require.ErrorIs(t, err, proxmoxapi.ErrNotFound)
}

func TestFindFailsAtOnceAfterNoAnswer(t *testing.T) {
	t.Parallel()

	p := &proxmox{down: errors.New("connection refused")}

	all := proxmoxapi.NewMachines(setting, p)
	for _, vmid := range []int{3000, 3001, 3002} {
		_, err := all.Find(t.Context(), "pve1", vmid)
		require.ErrorContains(t, err, "connection refused")
	}

	assert.Len(t, p.requests, 1)
}
