package preflight

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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

// answerWithin is how long the Image Factory may take for an answer.
const answerWithin = 10 * time.Second

// Questions are put to a site.
type Questions struct {
	Plan     *spec.Plan
	Stack    Stack
	Endpoint string
	Proxmox  *proxmoxapi.Machines
	Factory  talos.Factory
	// Transport reaches the Image Factory; nil = HTTP's default.
	Transport http.RoundTripper
}

// Ask puts all questions, each once, and as many at the same time as Proxmox is asked: the first one alone, which shows
// whether anybody answers. What has no answer is no error.
func Ask(ctx context.Context, q Questions) *Site {
	a := &asker{
		Questions: q, work: newWork(q.Plan, q.Stack),
		site: &Site{
			Endpoint: q.Endpoint, Identity: q.Proxmox.Identity(), Asked: time.Now(), Foreign: map[string][]int{},
		},
	}

	var all sync.WaitGroup
	all.Go(func() { a.askFactory(ctx) })
	all.Go(func() { a.askProxmox(ctx) })
	all.Wait()
	slices.Sort(a.site.Unasked)

	return a.site
}

type asker struct {
	Questions

	work work

	mutex sync.Mutex // guards site
	site  *Site
}

// note writes down an answer, or why there is none.
func (a *asker) note(what string, err error, answer func(*Site)) {
	a.mutex.Lock()
	defer a.mutex.Unlock()

	if err == nil {
		answer(a.site)

		return
	}

	a.site.Unasked = append(a.site.Unasked, fmt.Sprintf("%s cannot be asked for, and is not compared with the "+
		"plan: %s", what, err))
}

// ask asks Proxmox a question, and writes the answer down.
func ask[T any](ctx context.Context, a *asker, what, path string, answer func(*Site, T)) {
	var got T

	err := a.Proxmox.Get(ctx, path, &got)
	a.note(what, err, func(s *Site) { answer(s, got) })
}

func (a *asker) askProxmox(ctx context.Context) {
	if !a.askRights(ctx) {
		return
	}

	var all sync.WaitGroup
	for _, question := range []func(context.Context){
		a.askVersion, a.askHosts, a.askQuorum, a.askMachines, a.askMappings, a.askPools, a.askAccounts, a.askVolumes,
		a.askToken,
	} {
		all.Go(func() { question(ctx) })
	}

	all.Wait()
}

// askRights asks what the credentials may do. It says whether anybody lets them in.
func (a *asker) askRights(ctx context.Context) bool {
	var rights map[string]map[string]flag

	err := a.Proxmox.Get(ctx, "/access/permissions", &rights)
	switch status := proxmoxapi.Refused(err); {
	case status == http.StatusUnauthorized:
		a.site.Refused = err // no one else writes it

		return false
	case err != nil && status == 0:
		a.site.Silent = err

		return false
	}

	a.note("what "+a.site.Identity+" may do", err, func(s *Site) { s.Rights = granted(rights) })

	return true
}

// flag is a truth of Proxmox, which writes it as a number, a text or nothing.
type flag bool

// UnmarshalJSON implements json.Unmarshaler.
func (f *flag) UnmarshalJSON(text []byte) error {
	*f = flag(!slices.Contains([]string{"0", `"0"`, `""`, "null", "false"}, string(text)))

	return nil
}

func granted(rights map[string]map[string]flag) permissions.Granted {
	all := permissions.Granted{}
	for path, privileges := range rights {
		all[path] = map[string]bool{}
		for privilege, propagates := range privileges {
			all[path][privilege] = bool(propagates)
		}
	}

	return all
}

func (a *asker) askVersion(ctx context.Context) {
	ask(ctx, a, "the version of Proxmox", "/version", func(s *Site, answer struct {
		Release string `json:"release"`
	},
	) {
		s.Version = answer.Release
	})
}

// askHosts asks for the hosts, then each that is there for its storages and its bridges.
func (a *asker) askHosts(ctx context.Context) {
	ask(ctx, a, "the hosts of Proxmox's cluster", "/nodes", func(s *Site, list []struct {
		Name   string `json:"node"`
		Status string `json:"status"`
		Cores  int    `json:"maxcpu"`
	},
	) {
		s.Hosts = map[string]*Host{}
		for _, h := range list {
			s.Hosts[h.Name] = &Host{Status: h.Status, Cores: h.Cores}
		}
	})

	var all sync.WaitGroup

	for _, h := range a.Plan.Hosts {
		if !a.site.online(h.Name) {
			continue
		}

		path := "/nodes/" + url.PathEscape(h.Name)

		all.Go(func() {
			ask(ctx, a, "what storages "+h.Name+" has", path+"/storage",
				func(s *Site, storages []hostfacts.Storage) { s.Hosts[h.Name].Storages = storages })
		})
		all.Go(func() {
			ask(ctx, a, "what bridges "+h.Name+" has", path+"/network?type=any_bridge",
				func(s *Site, bridges []Bridge) { s.Hosts[h.Name].Bridges = bridges })
		})
	}

	all.Wait()
}

// askQuorum asks for something that the documented role may not see: it is only an answer more.
func (a *asker) askQuorum(ctx context.Context) {
	if !a.site.Rights.Has("/", "Sys.Audit") {
		return
	}

	ask(ctx, a, "the quorum of Proxmox's cluster", "/cluster/status", func(s *Site, list []struct {
		Type    string `json:"type"`
		Quorate flag   `json:"quorate"`
	},
	) {
		for _, one := range list {
			s.NoQuorum = s.NoQuorum || one.Type == "cluster" && !bool(one.Quorate)
		}
	})
}

// mostDescriptions bounds how many machines in the way are asked whose they are.
const mostDescriptions = 50

func (a *asker) askMachines(ctx context.Context) {
	machines, err := a.Proxmox.List(ctx)
	a.note("which VMIDs are taken", err, func(s *Site) { s.Machines, s.Owners = machines, map[int]string{} })

	var all sync.WaitGroup

	found := slices.Concat(inTheWay(a.work, machines), namesakes(a.work, machines))
	for _, held := range found[:min(len(found), mostDescriptions)] {
		all.Go(func() {
			var config struct {
				Description string `json:"description"`
			}
			// A description that cannot be read has no owner.
			if err := a.Proxmox.Get(ctx, fmt.Sprintf("/nodes/%s/%s/%d/config",
				url.PathEscape(held.vm.Host), held.vm.Type, held.vm.VMID), &config); err == nil {
				a.note("", nil, func(s *Site) { s.Owners[held.vm.VMID] = config.Description })
			}
		})
	}

	all.Wait()
}

func (a *asker) askMappings(ctx context.Context) {
	if !slices.ContainsFunc(a.Plan.Hosts, func(h spec.Host) bool {
		return slices.ContainsFunc(h.GPUs, func(gpu spec.GPU) bool { return !gpu.Raw })
	}) {
		return
	}

	ask(ctx, a, "which PCI mappings there are", proxmoxapi.PathMappings, func(s *Site, list []proxmoxapi.Mapping) {
		s.Mappings = map[string]string{}
		for _, m := range list {
			s.Mappings[m.Name] = m.Comment
		}
	})
}

// askPools asks for the resource pools that new machines go into. Proxmox lists those that may be audited.
func (a *asker) askPools(ctx context.Context) {
	var unseen []string

	wanted := false

	for _, m := range a.work.machines {
		if m.ResourcePool == "" {
			continue
		}

		wanted = true

		path := "/pool/" + m.ResourcePool
		if rights := a.site.Rights; rights != nil && !rights.Has(path, "Pool.Audit") && !slices.Contains(unseen, path) {
			unseen = append(unseen, path)
		}
	}

	if !wanted {
		return
	}

	const what = "which resource pools there are"

	if len(unseen) > 0 {
		a.note(what, fmt.Errorf("%s would need Pool.Audit on %s", a.site.Identity, strings.Join(unseen, ", ")), nil)

		return
	}

	ask(ctx, a, what, "/pools", func(s *Site, list []struct {
		Name string `json:"poolid"`
	},
	) {
		s.Pools = []string{}
		for _, pool := range list {
			s.Pools = append(s.Pools, pool.Name)
		}
	})
}

// askFactory asks the Image Factory what it has where something is to be downloaded. It is not asked for the images
// themselves: it would build them, which takes minutes, and has those only whose schematic it was given.
func (a *asker) askFactory(ctx context.Context) {
	if len(a.work.talosImages()) == 0 {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()

	client := &http.Client{Transport: a.Transport}
	base := a.Factory.Base()

	var releases []string

	err := fetch(ctx, client, base+"/versions", &releases)
	a.note("which Talos versions the Image Factory at "+base+" has", err, func(s *Site) {
		s.Factory, s.Releases, s.Extensions = base, releases, map[string][]string{}
	})

	if err != nil {
		return
	}

	asked := map[string]bool{}
	for _, i := range a.work.talosImages() {
		if asked[i.Version] || len(i.Extensions) == 0 || !slices.Contains(releases, i.Version) {
			continue
		}

		asked[i.Version] = true

		var list []struct {
			Name string `json:"name"`
		}

		err := fetch(ctx, client, base+"/version/"+i.Version+"/extensions/official", &list)
		a.note("which extensions the Image Factory at "+base+" has", err, func(s *Site) {
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
