package spec

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/talos"
)

// planner plans a configuration and collects every problem. Later steps skip invalid values, so that each mistake is
// reported once.
type planner struct {
	config   Config
	options  Options
	secrets  secrets
	problems *problem.List
	warnings []string

	hosts     map[string]Host
	hostNames []string // in order
	classes   map[string]class
	templates map[[2]string]Template // in use, by class and host
	kinds     map[string]deviceKind  // by the name of devices
	ranges    map[RangeKind]VMIDRange
	pools     []*pool
	services  []serviceRange // for Services of type LoadBalancer

	vmids     *claims[int]
	addresses *claims[netip.Addr]
	macs      *claims[string]
	names     *claims[string]
}

func newPlanner(config Config, o Options, found secrets, problems *problem.List) *planner {
	return &planner{
		config: config, options: o, secrets: found, problems: problems,
		hosts:     map[string]Host{},
		classes:   map[string]class{},
		templates: map[[2]string]Template{},
		ranges:    map[RangeKind]VMIDRange{},
		kinds:     map[string]deviceKind{},
		vmids:     newClaims[int](),
		addresses: newClaims[netip.Addr](),
		macs:      newClaims[string](),
		names:     newClaims[string](),
	}
}

func (p *planner) plan() *Plan {
	plan := &Plan{Stack: p.options.Stack, Protect: p.config.Protect}
	p.checkWholeKeys()
	plan.ProxmoxCluster = p.planProxmoxCluster()
	plan.Backup = p.planBackup()
	plan.Notifications = p.planNotifications()
	p.planRanges()

	plan.Hosts = p.planHosts()
	for _, h := range plan.Hosts {
		p.hostNames = append(p.hostNames, h.Name)
	}

	p.reserveVMIDs()
	p.planClasses()
	plan.Clusters = p.planClusters()
	plan.Machines = p.planMachines()
	p.planAPIEndpoints(plan)
	plan.Egress = p.planEgress(plan)
	p.claimServices()
	p.checkKubernetesNetworks(plan.Clusters)
	slices.SortStableFunc(plan.Clusters, func(a, b Cluster) int { return strings.Compare(a.Name, b.Name) })
	p.assignDevices(plan)
	p.placeListedTemplates()
	plan.Templates = p.usedTemplates()
	p.reportConflicts()
	p.checkCapacity()
	p.warnOfSharedDatastores(plan)
	plan.Warnings = p.warnings

	return plan
}

// fingerprintPattern is the format of OpenSSL and Proxmox.
var fingerprintPattern = regexp.MustCompile(`^([0-9A-F]{2}:){31}[0-9A-F]{2}$`)

func (p *planner) planProxmoxCluster() string {
	fingerprint := strings.ToUpper(p.config.ProxmoxCluster)
	if fingerprint != "" && !fingerprintPattern.MatchString(fingerprint) {
		p.problems.Add(
			"proxmoxCluster", p.config.ProxmoxCluster, "is not a SHA-256 fingerprint; write 32 bytes as AA:BB:…, as "+
				"`openssl x509 -fingerprint -sha256 -noout -in /etc/pve/pve-root-ca.pem` prints them on a host",
		)
	}

	return fingerprint
}

// addMissing reports that a key is missing, unless it has a problem already: what has a wrong type is empty in the
// plan.
func (p *planner) addMissing(path, format string, arguments ...any) {
	if !p.problems.Has(path) {
		p.problems.Add(path, nil, format, arguments...)
	}
}

// isEncrypted reports whether a connection to a URL is encrypted, or does not leave the computer.
func isEncrypted(to *url.URL) bool {
	host, _ := netip.ParseAddr(to.Hostname())

	return to.Scheme == "https" || to.Scheme == "http" && host.IsLoopback()
}

// warn adds a warning. The output readme contains it: another wording is a change in the next preview of a stack.
func (p *planner) warn(format string, arguments ...any) {
	p.warnings = append(p.warnings, fmt.Sprintf(format, arguments...))
}

// minimum returns the smallest machine for a role; empty = a plain machine.
func minimum(role Role) (cores, memoryMiB, diskGiB int) {
	if role == "" {
		return 0, 0, 0
	}

	return talos.MinimumSize(string(role))
}
