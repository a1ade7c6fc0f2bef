package preflight

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// factoryTimeout bounds all requests to the Image Factory.
const factoryTimeout = 10 * time.Second

// Sources say what to read, and with what.
type Sources struct {
	Plan     *spec.Plan
	Stack    Stack
	Endpoint string
	Proxmox  *proxmoxapi.Machines
	Factory  talos.Factory
	// Transport is used for the Image Factory; nil = HTTP's default.
	Transport http.RoundTripper
	// Lookup resolves the names of endpoints; nil = as the operating system does.
	Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Read reads everything once, in parallel within the limit of proxmoxapi. The first request goes alone and shows
// whether Proxmox answers. What cannot be read is no error: Site.Unknown lists it.
func Read(ctx context.Context, q Sources) *Site {
	r := &reader{
		Sources: q, planned: newPlanned(q.Plan, q.Stack),
		site: &Site{
			Endpoint: q.Endpoint, Identity: q.Proxmox.Identity(), ReadAt: time.Now(), ForeignVolumes: map[string][]int{},
			LostVolumes: map[string][]string{}, APIs: map[string]API{},
		},
	}

	var wg sync.WaitGroup
	wg.Go(func() { r.readFactory(ctx) })
	wg.Go(func() { r.readProxmox(ctx) })
	wg.Go(func() { r.readAPIs(ctx) })
	wg.Wait()
	slices.Sort(r.site.Unknown)

	return r.site
}

type reader struct {
	Sources

	planned planned

	mu   sync.Mutex // guards site
	site *Site
}

// record stores an answer, or why there is none.
func (r *reader) record(what string, err error, answer func(*Site)) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if err == nil {
		answer(r.site)

		return
	}

	r.site.Unknown = append(r.site.Unknown, fmt.Sprintf("%s is unknown, and is not compared with the "+
		"plan: %s", what, err))
}

// get reads a path of Proxmox' API and stores the answer.
func get[T any](ctx context.Context, r *reader, what, path string, answer func(*Site, T)) {
	var result T

	err := r.Proxmox.Get(ctx, path, &result)
	r.record(what, err, func(s *Site) { answer(s, result) })
}

func (r *reader) readProxmox(ctx context.Context) {
	if !r.readRights(ctx) {
		return
	}

	var wg sync.WaitGroup
	for _, question := range []func(context.Context){
		r.readVersion, r.readHosts, r.readQuorum, r.readMachines, r.readGuests, r.readMappings, r.readPools, r.readAccounts,
		r.readRoles, r.readAutoscalers, r.readVolumes, r.readLostVolumes, r.readToken, r.readFirewall,
	} {
		wg.Go(func() { question(ctx) })
	}

	wg.Wait()

	// Whether it is the role or the rule that is missing matters only then.
	c := &checker{plan: r.Plan, stack: r.Stack, site: r.site, planned: r.planned}
	isLacking := func(role permissions.Role) bool { return len(c.lacks(role)) > 0 }

	if r.site.Roles == nil && r.site.Rights != nil && slices.ContainsFunc(permissions.Roles(), isLacking) {
		r.listRoles(ctx)
	}
}

// readRights reads the privileges of the credentials. It returns false if Proxmox refuses them or does not answer.
func (r *reader) readRights(ctx context.Context) bool {
	rights, err := ReadRights(ctx, r.Proxmox)
	switch status := proxmoxapi.StatusCode(err); {
	case status == http.StatusUnauthorized:
		r.site.LoginError = err // nothing else runs yet

		return false
	case err != nil && status == 0:
		r.site.Unreachable = err

		return false
	}

	r.record("what "+r.site.Identity+" may do", err, func(s *Site) { s.Rights = rights })

	return true
}

// ReadRights reads the privileges of the credentials.
func ReadRights(ctx context.Context, proxmox *proxmoxapi.Machines) (permissions.Granted, error) {
	var rights map[string]map[string]proxmoxapi.Boolean
	if err := proxmox.Get(ctx, "/access/permissions", &rights); err != nil {
		return nil, err
	}

	return parseRights(rights), nil
}

func parseRights(rights map[string]map[string]proxmoxapi.Boolean) permissions.Granted {
	all := permissions.Granted{}
	for path, privileges := range rights {
		all[path] = map[string]bool{}
		for privilege, propagates := range privileges {
			all[path][privilege] = bool(propagates)
		}
	}

	return all
}

func (r *reader) readVersion(ctx context.Context) {
	get(ctx, r, "the version of Proxmox", "/version", func(s *Site, answer struct {
		Release string `json:"release"`
	},
	) {
		s.Version = answer.Release
	})
}

// readHosts reads the list of hosts, then the storages and bridges of those online.
func (r *reader) readHosts(ctx context.Context) {
	hosts, err := proxmoxapi.Hosts(ctx, r.Proxmox.Get)
	r.record("the hosts of Proxmox' cluster", err, func(s *Site) {
		s.Hosts = map[string]*Host{}
		for _, h := range hosts {
			s.Hosts[h.Name] = &Host{Status: h.Status, Cores: h.Cores}
		}
	})

	var wg sync.WaitGroup

	for _, h := range r.Plan.Hosts {
		if !r.site.online(h.Name) {
			continue
		}

		path := "/nodes/" + url.PathEscape(h.Name)

		wg.Go(func() {
			get(ctx, r, "what storages "+h.Name+" has", path+"/storage",
				func(s *Site, storages []hostfacts.Storage) { s.Hosts[h.Name].Storages = storages })
		})
		wg.Go(func() {
			get(ctx, r, "what bridges "+h.Name+" has", path+"/network?type=any_bridge",
				func(s *Site, bridges []Bridge) { s.Hosts[h.Name].Bridges = bridges })
		})
	}

	wg.Wait()
}

// readQuorum reads the quorum if the credentials may: the documented role does not need it.
func (r *reader) readQuorum(ctx context.Context) {
	if !r.site.Rights.Has("/", "Sys.Audit") {
		return
	}

	quorate, err := proxmoxapi.Quorate(ctx, r.Proxmox.Get)
	r.record("the quorum of Proxmox' cluster", err, func(s *Site) { s.NoQuorum = !quorate })
}

// maxDescriptions bounds how many descriptions of conflicting machines are read.
const maxDescriptions = 50

func (r *reader) readMachines(ctx context.Context) {
	machines, err := r.Proxmox.List(ctx)
	r.record("which VMIDs are taken", err, func(s *Site) { s.Machines, s.Descriptions = machines, map[int]string{} })

	var wg sync.WaitGroup

	conflicts := slices.Concat(vmidConflicts(r.planned, machines), nameConflicts(r.planned, machines))
	for _, conflict := range conflicts[:min(len(conflicts), maxDescriptions)] {
		wg.Go(func() {
			var config struct {
				Description string `json:"description"`
			}
			// A machine without a readable description has no owner.
			if err := r.Proxmox.Get(ctx, fmt.Sprintf("/nodes/%s/%s/%d/config",
				url.PathEscape(conflict.vm.Host), conflict.vm.Type, conflict.vm.VMID), &config); err == nil {
				r.record("", nil, func(s *Site) { s.Descriptions[conflict.vm.VMID] = config.Description })
			}
		})
	}

	wg.Wait()
}

// readMappings reads the mappings of the kinds that the plan uses.
func (r *reader) readMappings(ctx context.Context) {
	planned := mappingsOf(r.Plan)

	for _, kind := range []struct{ name, path string }{
		{"PCI", proxmoxapi.PathPCIMappings}, {"USB", proxmoxapi.PathUSBMappings},
	} {
		above := strings.TrimPrefix(kind.path, "/cluster") + "/"
		if !slices.ContainsFunc(planned, func(path string) bool { return strings.HasPrefix(path, above) }) {
			continue
		}

		get(ctx, r, "which "+kind.name+" mappings there are", kind.path, func(s *Site, list []proxmoxapi.Mapping) {
			if s.Mappings == nil {
				s.Mappings = map[string]string{}
			}

			for _, m := range list {
				s.Mappings[above+m.Name] = m.Comment
			}
		})
	}
}

// readPools reads the resource pools if the plan uses any. Proxmox lists only pools that the credentials may audit.
func (r *reader) readPools(ctx context.Context) {
	var paths []string

	for _, m := range r.planned.machines {
		if m.ResourcePool != "" {
			paths = append(paths, "/pool/"+m.ResourcePool)
		}
	}

	for _, pool := range autoscaledPools(r.Plan) {
		paths = append(paths, "/pool/"+pool.ResourcePool)
	}

	if len(paths) == 0 {
		return
	}

	slices.Sort(paths)

	const what = "which resource pools there are"

	if rights := r.site.Rights; rights != nil {
		unreadable := slices.DeleteFunc(slices.Compact(paths), func(p string) bool { return rights.Has(p, "Pool.Audit") })
		if len(unreadable) > 0 {
			r.record(what, fmt.Errorf("%s would need Pool.Audit on %s", r.site.Identity, strings.Join(unreadable, ", ")), nil)

			return
		}
	}

	get(ctx, r, what, "/pools", func(s *Site, list []struct {
		Name string `json:"poolid"`
	},
	) {
		s.Pools = []string{}
		for _, pool := range list {
			s.Pools = append(s.Pools, pool.Name)
		}
	})
}

// readFactory reads the Image Factory's versions and extensions if images are to be downloaded. It does not request the
// images: the Factory would build them, which takes minutes, and needs their schematics first.
func (r *reader) readFactory(ctx context.Context) {
	if len(r.planned.talosImages()) == 0 {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, factoryTimeout)
	defer cancel()

	client := &http.Client{Transport: r.Transport}
	base := r.Factory.Base()

	var releases []string

	err := fetch(ctx, client, base+"/versions", &releases)
	r.record("which Talos versions the Image Factory at "+base+" has", err, func(s *Site) {
		s.Factory, s.Releases, s.Extensions = base, releases, map[string][]string{}
	})

	if err != nil {
		return
	}

	done := map[string]bool{}
	for _, i := range r.planned.talosImages() {
		if done[i.Version] || len(i.Extensions) == 0 || !slices.Contains(releases, i.Version) {
			continue
		}

		done[i.Version] = true

		var list []struct {
			Name string `json:"name"`
		}

		err := fetch(ctx, client, base+"/version/"+i.Version+"/extensions/official", &list)
		r.record("which extensions the Image Factory at "+base+" has", err, func(s *Site) {
			names := []string{}
			for _, e := range list {
				names = append(names, e.Name)
			}

			s.Extensions[i.Version] = names
		})
	}
}

func fetch(ctx context.Context, client *http.Client, address string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}

	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it is read

	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", response.Status)
	}

	return json.NewDecoder(response.Body).Decode(into)
}
