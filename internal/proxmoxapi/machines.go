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

// Limits of asking: a host's API is served by three processes.
const (
	askedAtOnce  = 6
	answerWithin = 10 * time.Second
)

// shutdownWithin is how long a guest may take to shut down for a restart: as long as the provider gives it.
const shutdownWithin = 10 * time.Minute

// ErrGone is a VM that is on no host.
var ErrGone = errors.New("there is no such VM")

// Machines asks the API, and knows which machines have which VMIDs.
type Machines struct {
	value     Setting
	transport http.RoundTripper
	turns     chan struct{}
	list      func(ctx context.Context) ([]Listed, error) // as it was when it was first asked for

	mutex  sync.Mutex // guards what follows
	client *proxmox.Client
	failed error // no one answers
}

// NewMachines asks no one yet; a nil transport is HTTP's default.
func NewMachines(value Setting, transport http.RoundTripper) *Machines {
	g := &Machines{value: value, transport: transport, turns: make(chan struct{}, askedAtOnce)}

	var (
		once sync.Once
		all  []Listed
		err  error
	)

	g.list = func(ctx context.Context) ([]Listed, error) {
		once.Do(func() { all, err = g.now(ctx) })

		return all, err
	}

	return g
}

// Identity is whom Proxmox takes the credentials for.
func (g *Machines) Identity() string { return Identity(g.value) }

// Get asks the API. Once it did not answer it is not asked again.
func (g *Machines) Get(ctx context.Context, path string, into any) error {
	g.turns <- struct{}{}

	defer func() { <-g.turns }()

	return g.ask(ctx, func(ctx context.Context, client *proxmox.Client) error {
		return Said(client.Get(ctx, path, into))
	})
}

// List returns all machines that the credentials may see, as they were when they were first asked for.
func (g *Machines) List(ctx context.Context) ([]Listed, error) {
	g.turns <- struct{}{}

	defer func() { <-g.turns }()

	return g.list(ctx)
}

func (g *Machines) now(ctx context.Context) (all []Listed, err error) {
	err = g.ask(ctx, func(ctx context.Context, client *proxmox.Client) error {
		all, err = List(ctx, client)

		return err
	})

	return all, err
}

// ask bounds a question. Anything that is not an answer of Proxmox ends all questions.
func (g *Machines) ask(ctx context.Context, question func(context.Context, *proxmox.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()

	client, err := g.connect(ctx)
	if err != nil {
		return err
	}

	err = question(ctx, client)
	if r := new(refusal); err != nil && !errors.As(err, &r) && !errors.Is(err, ErrGone) {
		g.fail(err)
	}

	return err
}

// Machine is a VM as Proxmox has it.
type Machine struct {
	Host   string
	Config Config
	// Stopped machines do not run.
	Stopped bool
}

// Config is a VM's configuration by Proxmox' own names, such as memory and scsi0.
type Config map[string]value

// value is a text or a number.
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

// Generation tells a machine from others that had its VMID before: Proxmox gives a VM a new one when it is made,
// cloned, restored from a backup or rolled back to a snapshot, and keeps it when the VM is moved. Where someone
// switched it off, a machine that was recreated has another identity still.
func (m Machine) Generation() string {
	if generation := m.Config["vmgenid"]; generation != "" && generation != "0" {
		return string(generation)
	}

	return string(m.Config["smbios1"])
}

// Number is a number of the configuration; 0 = it is none.
func (m Machine) Number(key string) int {
	number, _ := strconv.Atoi(string(m.Config[key])) // 0 with an error

	return number
}

// Option is an option of a device, such as the bridge of net0; empty = it has none. The device is there or not.
func (m Machine) Option(device, option string) (value string, found bool) {
	text, found := m.Config[device]
	for part := range strings.SplitSeq(string(text), ",") {
		if stated, is := strings.CutPrefix(part, option+"="); is {
			value = stated
		}
	}

	return value, found
}

// DiskGiB is the size of a disk, rounded up; ok is false for one that is not there.
func (m Machine) DiskGiB(place string) (size int, ok bool) {
	text, ok := m.Option(place, "size")
	if text != "" {
		number, unit := text[:len(text)-1], text[len(text)-1]

		mebibytes := map[byte]float64{'K': 1.0 / 1024, 'M': 1, 'G': 1024, 'T': 1024 * 1024}[unit]
		if parsed, err := strconv.ParseFloat(number, 64); err == nil {
			return int(math.Ceil(parsed * mebibytes / 1024)), ok
		}
	}

	return math.MaxInt, ok // without a size that is known
}

// Find returns the machine with a VMID, which is looked for on the host first; an empty host is any. Once the API did
// not answer it is not asked again.
func (g *Machines) Find(ctx context.Context, host string, vmid int) (m Machine, err error) {
	g.turns <- struct{}{}

	defer func() { <-g.turns }()

	err = g.ask(ctx, func(ctx context.Context, client *proxmox.Client) error {
		err := ErrGone
		if host != "" {
			m, err = read(ctx, client, host, vmid)
		}

		if err != nil && (errors.Is(err, ErrGone) || strings.Contains(err.Error(), "does not exist")) {
			if host, err = hostOf(ctx, client, vmid); err == nil {
				m, err = read(ctx, client, host, vmid)
			}
		}

		if err == nil {
			m.Stopped, err = g.stopped(ctx, client, m.Host, vmid)
		}

		return err
	})

	return m, err
}

// stopped asks for a machine that did not run when the list was made: the list is seconds old, and machines start
// meanwhile.
func (g *Machines) stopped(ctx context.Context, client *proxmox.Client, host string, vmid int) (bool, error) {
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
		return false, fmt.Errorf("unable to read the status of VM %d on host %s: %w", vmid, host, Said(err))
	}

	return now.Status == "stopped", nil
}

// read takes what the VM runs with. By default Proxmox answers with what it has from its next start on.
func read(ctx context.Context, client *proxmox.Client, host string, vmid int) (Machine, error) {
	m := Machine{Host: host}
	if err := client.Get(ctx, configPath(host, vmid)+"?current=1", &m.Config); err != nil {
		return m, fmt.Errorf("unable to read VM %d on host %s: %w", vmid, host, Said(err))
	}

	return m, nil
}

func configPath(host string, vmid int) string {
	return fmt.Sprintf("/nodes/%s/qemu/%d/config", url.PathEscape(host), vmid)
}

// Restarted is the configuration that a VM has from its next start on, with the changes that wait for it.
func (g *Machines) Restarted(ctx context.Context, host string, vmid int) (config Config, err error) {
	return config, g.Get(ctx, configPath(host, vmid), &config)
}

// Restart shuts a VM down and starts it again, which applies the pending changes of its configuration. It returns once
// Proxmox's task has ended, which gives the guest ten minutes to shut down.
func (g *Machines) Restart(ctx context.Context, host string, vmid int) error {
	client, err := g.connect(ctx)
	if err != nil {
		return err
	}

	path := fmt.Sprintf("/nodes/%s/qemu/%d/status/reboot", url.PathEscape(host), vmid)

	var id proxmox.UPID
	if err := client.Post(ctx, path, map[string]any{"timeout": shutdownWithin.Seconds()}, &id); err != nil {
		return Said(err)
	}

	return Await(ctx, client, id, time.Second)
}

// Listed is a machine, or a container, in the list of all hosts' machines.
type Listed struct {
	Type     string `json:"type"` // qemu or lxc
	VMID     int    `json:"vmid"`
	Name     string `json:"name"`
	Host     string `json:"node"`
	Status   string `json:"status"`
	Template int    `json:"template"` // 1 = it is one
}

// List asks for the machines of all hosts that the credentials may see.
func List(ctx context.Context, client *proxmox.Client) ([]Listed, error) {
	var all []Listed
	if err := client.Get(ctx, "/cluster/resources?type=vm", &all); err != nil {
		return nil, fmt.Errorf("unable to list Proxmox's machines: %w", Said(err))
	}

	return all, nil
}

func hostOf(ctx context.Context, client *proxmox.Client, vmid int) (string, error) {
	all, err := List(ctx, client)
	if err != nil {
		return "", err
	}

	for _, vm := range all {
		if vm.VMID == vmid {
			return vm.Host, nil
		}
	}

	return "", ErrGone
}

func (g *Machines) connect(ctx context.Context) (*proxmox.Client, error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()

	if g.failed == nil && g.client == nil {
		g.client, g.failed = Connect(ctx, g.value, g.transport)
	}

	return g.client, g.failed
}

func (g *Machines) fail(err error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()

	g.failed = err
}
