package machine

import (
	"cmp"
	"context"
	"crypto/tls"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"talos-proxmox/lab/machine/certificates"
	"talos-proxmox/lab/machine/configuration"
	"talos-proxmox/lab/machine/kube"
	"talos-proxmox/lab/machine/listeners"
	"talos-proxmox/lab/machine/network"
	"talos-proxmox/lab/machine/services"
)

// mode returns the mode in which Talos validates configurations on the booted platform. To Talos, nocloud is a cloud,
// which does not require install instructions.
func (m *machine) mode() configuration.Mode {
	return configuration.Mode{Metal: m.system.Platform == "metal", Installed: !m.system.Live}
}

// validator validates configurations as the machine's Talos does.
func (m *machine) validator() configuration.Validator {
	return configuration.Validator{Release: m.release, Version: m.system.Version, Mode: m.mode()}
}

// runConfigured runs a machine that has a configuration until the boot ends.
func (m *machine) runConfigured(ctx context.Context, bootTime time.Duration) outcome {
	m.ms.mu.Lock()
	configuration := m.disk.Configuration
	m.ms.mu.Unlock()

	cfg, err := m.validator().Load([]byte(configuration))
	if err != nil || cfg.Machine() == nil || cfg.Cluster() == nil {
		m.ReportProblem("the machine configuration on the disk is not usable (%v): reset the machine", err)
		<-ctx.Done()

		return outcome{}
	}

	m.ms.mu.Lock()
	m.config = cfg
	m.planNetwork(cfg)

	if !m.openVolumes() {
		m.ms.mu.Unlock()
		<-ctx.Done()

		return outcome{}
	}

	m.join()
	m.setStage(runtime.MachineStageBooting)
	m.logMissingVolumes()
	m.kernel.Load(m.config)
	m.startServices()
	m.services.Set("apid", services.Waiting, "Waiting for api certificates")
	m.ms.mu.Unlock()

	if !m.sleep(ctx, cmp.Or(bootTime, m.durations().BootConfigured)) || !m.startAPI(ctx) {
		return outcome{}
	}

	if m.upgradeFails() {
		m.revertUpgrade()

		return outcome{}
	}

	m.Go(func() { m.sendLogs(ctx) })
	m.Go(func() { m.renewAPI(ctx) })
	m.Go(func() { m.kube.runKubelet(ctx) })
	m.Go(func() { m.awaitServices(ctx) })

	if cfg.Machine().Type().IsControlPlane() {
		m.Go(func() { m.kube.runEtcd(ctx) })
		m.Go(func() { m.kube.runStaticPods(ctx) })
		m.Go(func() { m.runVIPs(ctx) })
		m.Go(func() { m.runManifests(ctx) })
	}

	for {
		select {
		case <-ctx.Done():
			return outcome{}
		case a := <-m.actions:
			if next, ended := m.perform(ctx, a); ended {
				return next
			}
		}
	}
}

// admits reports whether new connections are admitted by Proxmox' firewall in front of the machine, and by that of its
// configuration.
func (m *machine) admits(source netip.Addr, to netip.AddrPort) bool {
	if !m.ms.world.FirewallAdmits(m.hw.VMID, source, to) {
		return false
	}

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	return m.config == nil || network.Admits(m.config, source, to.Port())
}

// certificateMachine returns the machine for its certificates; the caller holds the lock.
func (m *machine) certificateMachine() certificates.Machine {
	return certificates.Machine{
		Config: m.config, Hostname: m.hostname, Addresses: append(network.VirtualIPs(m.config), m.apiAddresses()...),
		MinimumTLS: m.release.MinimumTLS,
	}
}

// startAPI serves the Talos API: a control plane at once, a worker once a control plane has signed its certificate. It
// returns false if the boot ended first.
func (m *machine) startAPI(ctx context.Context) bool {
	var (
		creds certificates.Apid
		err   error
	)

	if !m.cluster.await(ctx, func() (ok bool) {
		creds, ok, err = m.apidCredentials()

		return ok
	}) {
		return false
	}

	if err == nil {
		err = m.listeners.Configure(listeners.API{
			Server: creds.Server, Client: creds.Client, Requests: &m.ms.requests,
			Register: m.registerServices, IsLocal: m.isLocal, Resolve: m.ms.resolve,
		})
	}

	if err != nil {
		m.ReportProblem("apid: %s", err)
		<-ctx.Done()

		return false
	}

	m.ms.mu.Lock()
	addresses := m.apiAddresses()
	m.ms.mu.Unlock()

	m.listeners.OpenTalos(addresses)

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.apidUp = true
	m.services.Set("apid", services.Running, "Health check successful")

	if m.isControlPlane() {
		m.services.Set("trustd", services.Running, "Health check successful")
	}

	m.cluster.changed.fire()

	return true
}

// apidCredentials issues apid's credentials. A worker needs a control plane to sign them; ok is false while there is
// none. The caller holds the lock.
func (m *machine) apidCredentials() (creds certificates.Apid, ok bool, err error) {
	authority := m
	if !m.isControlPlane() {
		authority = m.findTrustd()
	}

	if authority == nil {
		return creds, false, nil
	}

	m.apidTrust = certificates.OSTrust(m.config)
	creds, err = m.certificateMachine().Apid(authority.config)

	return creds, true, err
}

// renewAPI renews apid's credentials whenever the authorities of the Talos API in the configuration change, as Talos
// does (internal/app/machined/pkg/controllers/secrets/api.go).
func (m *machine) renewAPI(ctx context.Context) {
	for {
		var (
			creds certificates.Apid
			err   error
		)

		if !m.cluster.await(ctx, func() (ok bool) {
			if m.config != nil && m.apidTrust != certificates.OSTrust(m.config) {
				creds, ok, err = m.apidCredentials()
			}

			return ok
		}) {
			return
		}

		if err != nil {
			m.ReportProblem("apid: %s", err)

			continue
		}

		m.listeners.Renew(creds.Server, creds.Client)
	}
}

// etcdReady reports whether the machine's etcd member votes in a cluster with quorum; the caller holds the lock.
func (m *machine) etcdReady() bool {
	if m.etcd == nil || !m.services.Running("etcd") || !m.etcd.HasQuorum() {
		return false
	}

	member := m.etcd.Member(m.disk.Etcd.MemberID)

	return member != nil && !member.Learner
}

// runStaticPods implements kubernetes with the model's API server.
func (m modelKubernetes) runStaticPods(ctx context.Context) {
	if !m.cluster.await(ctx, m.etcdReady) || !m.sleep(ctx, m.durations().KubernetesAPI) {
		return
	}

	for _, image := range []func(config.Config) string{
		func(cfg config.Config) string { return cfg.K8sAPIServerConfig().Image() },
		func(cfg config.Config) string { return cfg.K8sControllerManagerConfig().Image() },
		func(cfg config.Config) string { return cfg.K8sSchedulerConfig().Image() },
	} {
		if !m.awaitImage(ctx, "", image) {
			return
		}
	}

	var current atomic.Pointer[tls.Config]

	trust, ok := m.loadAPIServerTLS(&current)
	if !ok {
		return
	}

	m.listeners.SetKubernetes(listeners.NewHTTP(kube.NewServer(m), &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.Load(), nil },
	}))

	m.ms.mu.Lock()
	addresses, port := append(m.apiAddresses(), m.heldVIPs()...), uint16(m.config.K8sAPIServerConfig().APIPort())
	m.ms.mu.Unlock()

	m.listeners.OpenKubernetes(addresses, port) // before it is reported ready

	m.ms.mu.Lock()
	m.setAPIServerUp(true)
	m.ms.mu.Unlock()

	// Static pods restart when their certificates change.
	for ok && m.cluster.await(ctx, func() bool {
		return m.config != nil && trust != certificates.ClusterTrust(m.config)
	}) {
		trust, ok = m.loadAPIServerTLS(&current)
	}
}

// loadAPIServerTLS issues the API server's certificates from the configuration's authorities, and returns a key of
// those authorities.
func (m modelKubernetes) loadAPIServerTLS(current *atomic.Pointer[tls.Config]) (trust string, ok bool) {
	m.ms.mu.Lock()

	if m.config == nil { // the machine is going down
		m.ms.mu.Unlock()

		return "", false
	}

	trust = certificates.ClusterTrust(m.config)
	config, err := m.certificateMachine().APIServer()
	m.ms.mu.Unlock()

	if err != nil {
		m.ReportProblem("kube-apiserver: %s", err)

		return "", false
	}

	current.Store(config)

	return trust, true
}

// runVIPs holds the configuration's virtual IPs while etcd is ready and no other control plane holds them.
func (m *machine) runVIPs(ctx context.Context) {
	for {
		var take, drop []netip.Addr

		if !m.cluster.await(ctx, func() bool {
			take, drop = m.vipChanges()

			return len(take)+len(drop) > 0
		}) {
			return
		}

		for _, a := range drop {
			m.listeners.CloseAddress(a)
		}

		m.ms.mu.Lock()
		port := uint16(m.config.K8sAPIServerConfig().APIPort())

		for _, a := range drop {
			m.logfLocked("[talos] removed shared IP %s", a)
			delete(m.vips, a.String())
		}

		for _, a := range take {
			m.logfLocked("[talos] enabled shared IP %s", a)
		}

		m.cluster.changed.fire()
		m.changed.fire()
		m.ms.mu.Unlock()

		m.listeners.OpenTalos(take)
		m.listeners.OpenKubernetes(take, port)
	}
}

// vipChanges claims the free addresses, and returns them and those to release; the caller holds the lock.
func (m *machine) vipChanges() (take, drop []netip.Addr) {
	wanted := map[string]bool{}

	if m.etcdReady() {
		for _, a := range network.VirtualIPs(m.config) {
			wanted[a.String()] = true

			if !m.cluster.hasVIP(a) {
				m.vips[a.String()] = true
				take = append(take, a)
			}
		}
	}

	for a := range m.vips {
		if !wanted[a] {
			drop = append(drop, netip.MustParseAddr(a))
		}
	}

	return take, drop
}

func (c *cluster) hasVIP(a netip.Addr) bool {
	for _, m := range c.members {
		if m.vips[a.String()] {
			return true
		}
	}

	return false
}

// logMissingVolumes logs which volumes have no disk; the caller holds the lock.
func (m *machine) logMissingVolumes() {
	for _, line := range m.disks.MissingVolumes(m.config, m.release) {
		m.logfLocked("[talos] %s", line)
	}
}

// heldVIPs returns the virtual IPs that the machine holds; the caller holds the lock.
func (m *machine) heldVIPs() []netip.Addr {
	held := make([]netip.Addr, 0, len(m.vips))
	for a := range m.vips {
		held = append(held, netip.MustParseAddr(a))
	}

	slices.SortFunc(held, netip.Addr.Compare)

	return held
}
