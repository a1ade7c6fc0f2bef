package proxmoxapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/luthermonson/go-proxmox"
)

// Limits of requests: three processes serve a host's API.
const (
	maxParallelRequests = 6
	requestTimeout      = 10 * time.Second
)

// shutdownTimeout is how long a guest may take to shut down for a restart: the same as with the provider.
const shutdownTimeout = 10 * time.Minute

// ErrNotFound means that a VM is on no host.
var ErrNotFound = errors.New("there is no such VM")

// Machines reads machines from the API.
type Machines struct {
	value     Setting
	transport http.RoundTripper
	slots     chan struct{}
	list      func(ctx context.Context) ([]Listed, error) // fetched once

	mu         sync.Mutex // guards what follows
	client     *proxmox.Client
	connectErr error // the API does not answer
}

// NewMachines sends no request yet; a nil transport is HTTP's default.
func NewMachines(value Setting, transport http.RoundTripper) *Machines {
	g := &Machines{value: value, transport: transport, slots: make(chan struct{}, maxParallelRequests)}

	var (
		once sync.Once
		all  []Listed
		err  error
	)

	g.list = func(ctx context.Context) ([]Listed, error) {
		once.Do(func() { all, err = g.fetchList(ctx) })

		return all, err
	}

	return g
}

// Identity returns the identity of the credentials.
func (g *Machines) Identity() string { return Identity(g.value) }

// Get sends a GET request. After a request without an answer, all others fail at once.
func (g *Machines) Get(ctx context.Context, path string, into any) error {
	g.slots <- struct{}{}

	defer func() { <-g.slots }()

	return g.do(ctx, func(ctx context.Context, client *proxmox.Client) error {
		return Cause(client.Get(ctx, path, into))
	})
}

// List returns all machines that the credentials may see, as of the first call.
func (g *Machines) List(ctx context.Context) ([]Listed, error) {
	g.slots <- struct{}{}

	defer func() { <-g.slots }()

	return g.list(ctx)
}

func (g *Machines) fetchList(ctx context.Context) (all []Listed, err error) {
	err = g.do(ctx, func(ctx context.Context, client *proxmox.Client) error {
		all, err = List(ctx, client)

		return err
	})

	return all, err
}

// do bounds a request. An error that is not a response of Proxmox makes all later requests fail.
func (g *Machines) do(ctx context.Context, request func(context.Context, *proxmox.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	client, err := g.connect(ctx)
	if err != nil {
		return err
	}

	err = request(ctx, client)
	if r := new(apiError); err != nil && !errors.As(err, &r) && !errors.Is(err, ErrNotFound) {
		g.fail(err)
	}

	return err
}

// Machine is a VM as Proxmox has it.
type Machine struct {
	Host    string
	Config  Config
	Stopped bool
}

// Config is a VM's configuration by Proxmox' keys, such as memory and scsi0.
type Config map[string]value

// value is a string or a number.
type value string

// UnmarshalJSON implements json.Unmarshaler.
func (v *value) UnmarshalJSON(text []byte) error {
	var plain string
	if json.Unmarshal(text, &plain) != nil {
		plain = string(text)
	}

	*v = value(plain)

	return nil
}

// Generation distinguishes a machine from earlier ones with its VMID: Proxmox sets a new vmgenid when a VM is created,
// cloned, restored from a backup or rolled back to a snapshot, and keeps it when the VM moves. If the vmgenid is
// disabled, a recreated machine still has another SMBIOS UUID.
func (m Machine) Generation() string {
	if generation := m.Config["vmgenid"]; generation != "" && generation != "0" {
		return string(generation)
	}

	return string(m.Config["smbios1"])
}

// CreationID returns the UUID that Proxmox generated when the VM was created or cloned; empty if it has none.
func (m Machine) CreationID() string {
	id, _ := m.Option("smbios1", "uuid")

	return id
}

// Number returns a number of the configuration; 0 if it is none.
func (m Machine) Number(key string) int {
	number, _ := strconv.Atoi(string(m.Config[key])) // 0 with an error

	return number
}

// Option returns an option of a device, such as the bridge of net0; empty if it has none. Found reports whether the
// device exists.
func (m Machine) Option(device, option string) (value string, found bool) {
	text, found := m.Config[device]
	for part := range strings.SplitSeq(string(text), ",") {
		if v, ok := strings.CutPrefix(part, option+"="); ok {
			value = v
		}
	}

	return value, found
}

// DiskGiB returns the size of a disk, rounded up; ok is false if it does not exist.
func (m Machine) DiskGiB(place string) (size int, ok bool) {
	text, ok := m.Option(place, "size")
	if text != "" {
		number, unit := text[:len(text)-1], text[len(text)-1]

		mebibytes := map[byte]float64{'K': 1.0 / 1024, 'M': 1, 'G': 1024, 'T': 1024 * 1024}[unit]
		if parsed, err := strconv.ParseFloat(number, 64); err == nil {
			return int(math.Ceil(parsed * mebibytes / 1024)), ok
		}
	}

	return math.MaxInt, ok // unknown size
}

// Find returns the machine with a VMID. It tries the host first; an empty host means any.
func (g *Machines) Find(ctx context.Context, host string, vmid int) (m Machine, err error) {
	g.slots <- struct{}{}

	defer func() { <-g.slots }()

	err = g.do(ctx, func(ctx context.Context, client *proxmox.Client) error {
		err := ErrNotFound
		if host != "" {
			m, err = readMachine(ctx, client, host, vmid)
		}

		if err != nil && (errors.Is(err, ErrNotFound) || strings.Contains(err.Error(), "does not exist")) {
			if host, err = findHost(ctx, client, vmid); err == nil {
				m, err = readMachine(ctx, client, host, vmid)
			}
		}

		if err == nil {
			m.Stopped, err = g.isStopped(ctx, client, m.Host, vmid)
		}

		return err
	})

	return m, err
}

// isStopped reads the status of a machine that did not run in the list: the list is seconds old, and the machine may
// have been started.
func (g *Machines) isStopped(ctx context.Context, client *proxmox.Client, host string, vmid int) (bool, error) {
	all, err := g.list(ctx)
	if err != nil {
		return false, err
	}

	if slices.ContainsFunc(all, func(vm Listed) bool { return vm.VMID == vmid && vm.Status == "running" }) {
		return false, nil
	}

	var now struct {
		Status string `json:"status"`
	}
	if err := client.Get(
		ctx, fmt.Sprintf("/nodes/%s/qemu/%d/status/current", url.PathEscape(host), vmid), &now,
	); err != nil {
		return false, fmt.Errorf("unable to read the status of VM %d on host %s: %w", vmid, host, Cause(err))
	}

	return now.Status == "stopped", nil
}

// readMachine reads the running configuration of a VM. By default, Proxmox returns the one for its next start.
func readMachine(ctx context.Context, client *proxmox.Client, host string, vmid int) (Machine, error) {
	m := Machine{Host: host}
	if err := client.Get(ctx, configPath(host, vmid)+"?current=1", &m.Config); err != nil {
		return m, fmt.Errorf("unable to read VM %d on host %s: %w", vmid, host, Cause(err))
	}

	return m, nil
}

func configPath(host string, vmid int) string {
	return fmt.Sprintf("/nodes/%s/qemu/%d/config", url.PathEscape(host), vmid)
}

// PendingConfig returns a VM's configuration for its next start, with pending changes.
func (g *Machines) PendingConfig(ctx context.Context, host string, vmid int) (config Config, err error) {
	return config, g.Get(ctx, configPath(host, vmid), &config)
}

// Restart shuts a VM down and starts it again, which applies pending changes of its configuration. It waits for
// Proxmox' task, which gives the guest ten minutes to shut down.
func (g *Machines) Restart(ctx context.Context, host string, vmid int) error {
	client, err := g.connect(ctx)
	if err != nil {
		return err
	}

	path := fmt.Sprintf("/nodes/%s/qemu/%d/status/reboot", url.PathEscape(host), vmid)

	return Changes{Client: client, Poll: time.Second}.Send(
		ctx, http.MethodPost, path, map[string]any{"timeout": shutdownTimeout.Seconds()},
	)
}

// Listed is a VM or container in the list of all hosts.
type Listed struct {
	Type     string `json:"type"` // qemu or lxc
	VMID     int    `json:"vmid"`
	Name     string `json:"name"`
	Host     string `json:"node"`
	Status   string `json:"status"`
	Template int    `json:"template"` // 1 = it is a template
	Tags     string `json:"tags"`     // separated by ;
	Memory   int64  `json:"maxmem"`   // in bytes
	Pool     string `json:"pool"`     // resource pool; empty = none
	HAState  string `json:"hastate"`  // in Proxmox' high availability; empty = it has none
}

const pathMachines = "/cluster/resources?type=vm"

// List lists the machines of all hosts that the credentials may see.
func List(ctx context.Context, client *proxmox.Client) ([]Listed, error) {
	var all []Listed
	if err := client.Get(ctx, pathMachines, &all); err != nil {
		return nil, fmt.Errorf("unable to list Proxmox' machines: %w", Cause(err))
	}

	return all, nil
}

func findHost(ctx context.Context, client *proxmox.Client, vmid int) (string, error) {
	all, err := List(ctx, client)
	if err != nil {
		return "", err
	}

	for _, vm := range all {
		if vm.VMID == vmid {
			return vm.Host, nil
		}
	}

	return "", ErrNotFound
}

func (g *Machines) connect(ctx context.Context) (*proxmox.Client, error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.connectErr == nil && g.client == nil {
		g.client, g.connectErr = Connect(ctx, g.value, g.transport)
	}

	return g.client, g.connectErr
}

func (g *Machines) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.connectErr = err
}
