// Package server assembles a lab: the data centre's model, its servers (Proxmox REST and a shell per host), the
// Image Factory and the Talos machines, on loopback addresses of one /16 network.
package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/crypto/ssh"

	"talos-proxmox/lab/charts"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/factory"
	"talos-proxmox/lab/hostos"
	"talos-proxmox/lab/machine"
	"talos-proxmox/lab/proxmox"
	"talos-proxmox/lab/shell"
)

// Defaults of Options.
const (
	DefaultNetwork = "127.20"
	DefaultSpeed   = 10
	DefaultHosts   = 2
)

// Options are the parts of a lab.
type Options struct {
	// Dir is the lab's folder, created if it is missing, for its owner only.
	Dir string
	// Network is the first half of the lab's addresses, such as "127.20": hosts are <network>.0.11 and up, machines
	// <network>.1.0/24.
	Network string
	// Hosts is the minimum number of Proxmox hosts: pve1, pve2, ….
	Hosts int
	// HostNames are additional hosts. A host that the lab once had stays, with its address.
	HostNames []string
	// Datastores are storages of every host; those that a host does not have are created as LVM thin pools.
	Datastores []string
	// Bridges are further bridges of every host beside vmbr0, with uplinks of their own and without a DHCP server.
	Bridges []string
	// Mappings are PCI and USB mappings of stacks, which the program's account may change and use.
	Mappings []string
	// Speed is the number of modelled seconds in a real one.
	Speed float64
	// Durations are those of the modelled work; the zero value is DefaultDurations.
	Durations datacentre.Durations
	// Kubernetes is KubernetesModel or KubernetesReal; empty is the lab's former kind, and the model for a new lab.
	Kubernetes string
	// Labkube is the binary for real etcd and Kubernetes.
	Labkube string
	// Isolated: hosts and machines reach loopback addresses only.
	Isolated bool
	// Storages are a host's storages beside its own ones; nil = none.
	Storages func(host string) []datacentre.StorageOptions
	// Release of Proxmox VE: datacentre.PVE8 or PVE9, the default.
	Release int
	Log     *slog.Logger
}

// Server is a running lab.
type Server struct {
	Data     *datacentre.Datacentre
	Machines *machine.Machines
	Factory  *factory.Factory
	// Requests counts the requests to the Proxmox API of all hosts.
	Requests *proxmox.Stats

	o       Options
	outside outside
	id      *identity
	network network
	closers []func() error
}

// network is the lab's addressing plan.
type network struct{ hosts, machines netip.Prefix }

func parseNetwork(half string) (network, error) {
	var n network

	var err error
	if n.hosts, err = netip.ParsePrefix(half + ".0.0/24"); err != nil || !n.hosts.Addr().IsLoopback() {
		return n, fmt.Errorf(
			"--network %q: not the first half of a loopback address; use one such as %s", half, DefaultNetwork,
		)
	}

	n.machines = netip.MustParsePrefix(half + ".1.0/24")

	return n, nil
}

func nth(p netip.Prefix, n byte) netip.Addr {
	a := p.Addr().As4()
	a[3] += n

	return netip.AddrFrom4(a)
}

func (o Options) withDefaults() Options {
	if o.Network == "" {
		o.Network = DefaultNetwork
	}

	if o.Hosts == 0 {
		o.Hosts = DefaultHosts
	}

	if o.Speed == 0 {
		o.Speed = DefaultSpeed
	}

	if o.Durations == (datacentre.Durations{}) {
		o.Durations = datacentre.DefaultDurations()
	}

	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}

	return o
}

// Open starts a lab, or restarts the one in Options.Dir with its state. The caller closes it.
func Open(o Options) (_ *Server, err error) {
	o = o.withDefaults()
	s := &Server{o: o, Requests: proxmox.NewStats()}

	if s.network, err = parseNetwork(o.Network); err != nil {
		return nil, err
	}

	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("unable to create the lab's folder: %w", err)
	}

	retry := listenRetry{until: time.Now().Add(listenTimeout)}

	claimed, err := retry.claim(nth(s.network.hosts, 1))
	if err != nil {
		return nil, err
	}

	s.closers = append(s.closers, claimed.Close)

	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()

	if err := retry.checkFree(s.network.machines); err != nil {
		return nil, err
	}

	if s.id, err = loadIdentity(o.Dir); err != nil {
		return nil, err
	}

	if err := s.openModel(); err != nil {
		return nil, err
	}

	if err := s.openFactory(); err != nil {
		return nil, err
	}

	if err := s.installHosts(); err != nil {
		return nil, err
	}

	for _, host := range s.Data.Hosts() {
		if err := s.openHost(host); err != nil {
			return nil, err
		}
	}

	labkube, err := s.chooseKubernetes()
	if err != nil {
		return nil, err
	}

	if labkube != nil {
		if err := s.openCharts(filepath.Join(filepath.Dir(labkube.Binary), "charts")); err != nil {
			return nil, err
		}
	}

	s.Machines = machine.New(s.Data, machine.Options{
		Resolver: registry{s.Data, s.Factory}, Schematic: s.schematic, ExtensionVersion: factory.ExtensionVersion,
		Labkube: labkube, Log: o.Log, Reach: s.reachOfMachines(),
	})
	s.Data.SetGuests(s.Machines)
	s.closers = append(s.closers, s.Machines.Close)

	// Hosts that were rebooting come up only now: their VMs start.
	if err := s.Data.SetHostSystem(hostos.System{}); err != nil {
		return nil, err
	}

	return s, s.id.save()
}

func (s *Server) openModel() error {
	names := s.id.addHosts(s.o)
	if len(names) > maxHosts {
		return fmt.Errorf("%d hosts: the lab has addresses for %d", len(names), maxHosts)
	}

	hosts := hostOptions(s.network, names, s.o.Datastores)

	for i := range hosts {
		hosts[i].Root = filepath.Join(s.o.Dir, "hosts", hosts[i].Name)
		hosts[i].Bridges = []string{defaultBridge}

		for _, bridge := range s.o.Bridges {
			if bridge != defaultBridge {
				hosts[i].Bridges = append(hosts[i].Bridges, bridge)
			}
		}

		hosts[i].Uplinks = len(hosts[i].Bridges)

		if s.o.Storages != nil {
			hosts[i].Storages = append(hosts[i].Storages, s.o.Storages(hosts[i].Name)...)
		}
	}

	gateway := nth(s.network.machines, 1)

	data, err := datacentre.Open(datacentre.Options{
		Path:      filepath.Join(s.o.Dir, "datacentre.json"),
		Hosts:     hosts,
		Release:   s.o.Release,
		Cluster:   "lab",
		Clock:     datacentre.NewClock(s.o.Speed),
		Durations: s.o.Durations,
		Fetch:     s.fetch,
		Network: datacentre.Network{
			Bridge: defaultBridge, Prefix: s.network.machines, Gateway: gateway, DNS: []netip.Addr{gateway},
			First: nth(s.network.machines, 100), Last: nth(s.network.machines, 199),
		},
	})
	if err != nil {
		return fmt.Errorf("unable to open the data centre: %w", err)
	}

	s.Data = data
	s.closers = append(s.closers, data.Close)

	data.Put(datacentre.Users, rootUser, datacentre.Config{"password": s.id.RootPassword})
	data.Delete(datacentre.Tokens, rootUser+"!lab") // of labs from before the program had its own account

	return GrantProgram(data, s.id.TokenSecret, s.o.Mappings...)
}

// defaultBridge is the bridge with the uplink and the DHCP server.
const defaultBridge = "vmbr0"

// Last bytes of the hosts' addresses.
const (
	firstHost = 11
	maxHosts  = 254 - firstHost + 1
)

const rootUser = "root@pam"

// installHosts installs the hosts' disks.
func (s *Server) installHosts() error {
	if _, err := s.id.authority(); err != nil {
		return err
	}

	for _, host := range s.Data.Hosts() {
		if err := (hostos.System{}).Install(host); err != nil {
			return err
		}

		if err := (hostos.System{}).WriteCA(host, s.id.CA); err != nil {
			return err
		}
	}

	return nil
}

func (s *Server) openFactory() error {
	f, err := factory.New(filepath.Join(s.o.Dir, "factory.json"))
	if err != nil {
		return fmt.Errorf("unable to open the image factory: %w", err)
	}

	s.Factory = f

	return s.serveHTTP("factory", nth(s.network.hosts, 2), factoryPort, f.Handler())
}

// openCharts serves the charts beside labkube, for clusters without Internet access.
func (s *Server) openCharts(folder string) error {
	return s.serveHTTP("charts", nth(s.network.hosts, 4), chartsPort, charts.Handler(folder))
}

func (s *Server) serveHTTP(name string, address netip.Addr, port int, handler http.Handler) error {
	ln, err := s.id.listen(name, address, port)
	if err != nil {
		return err
	}

	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	s.serve(func() error { return server.Serve(ln) }, server.Close)

	return nil
}

func (s *Server) openHost(host datacentre.Host) error {
	api, err := s.id.listen(host.Name+"/api", host.Address, apiPort)
	if err != nil {
		return err
	}

	ca, err := s.id.authority()
	if err != nil {
		return err
	}

	rest, err := proxmox.New(
		s.Data, proxmox.Options{Host: host.Name, CA: ca, Names: []string{host.Address.String()}, Stats: s.Requests},
	)
	if err != nil {
		return err
	}

	s.serveHost(host.Name, api, rest)

	key, err := s.id.hostKey(host.Name)
	if err != nil {
		return err
	}

	client, err := s.id.clientPublicKey()
	if err != nil {
		return err
	}

	listener, err := s.id.listen(host.Name+"/ssh", host.Address, sshPort)
	if err != nil {
		return err
	}

	sh, err := shell.New(s.Data, host.Name, shell.Options{
		HostKey: key, AuthorizedKeys: [][]byte{ssh.MarshalAuthorizedKey(client)},
	})
	if err != nil {
		return fmt.Errorf("unable to open the shell of %s: %w", host.Name, err)
	}

	s.serveHost(host.Name, listener, sh)

	return nil
}

func (s *Server) serve(run, stop func() error) {
	s.closers = append(s.closers, stop)

	go func() {
		if err := run(); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			s.o.Log.Error("a server ended", "error", err)
		}
	}()
}

// Close stops everything, in the reverse order of its start; the lab's folder keeps the state for the next Open.
func (s *Server) Close() error {
	var errs []error

	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}

	s.closers = nil

	return errors.Join(errs...)
}

// schematic returns what a machine's image was made of.
func (s *Server) schematic(id string) (machine.Schematic, bool) {
	found, ok := s.Factory.Schematic(id)

	return machine.Schematic{Extensions: found.Extensions}, ok
}
