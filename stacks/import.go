package stacks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"talos-proxmox/components"
	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
)

// imported is a resource in the file of `pulumi import`: one with an id is read from its provider, and one with outputs
// is taken as they are.
type imported struct {
	Type      string `json:"type"`
	Name      string `json:"name"` // in this file
	Logical   string `json:"logicalName"`
	Parent    string `json:"parent,omitempty"`
	Component bool   `json:"component,omitempty"`
	ID        string `json:"id,omitempty"`
	Version   string `json:"version,omitempty"`
	Server    string `json:"pluginDownloadUrl,omitempty"`
	Inputs    object `json:"inputs,omitempty"`
	Outputs   object `json:"outputs,omitempty"`
}

// importing is an import of machines into the state of a stack.
type importing struct {
	Deployed

	has      map[string]bool // names in the state, behind their types
	id       string          // of the stack that the machines say made them, before its state was lost
	clusters map[string]bool // those with secrets
	list     []imported
	byHand   []string // commands for a Proxmox host
	problems problem.List
}

// Import adds machines that run, and the machine secrets of their clusters, to the state of a stack: what others made,
// or the stack itself before its state was lost. Bundles are machine secrets by cluster, as `talosctl gen secrets`
// writes them; a cluster without one is left out. A machine is the plan's if it has its VMID and its name. Nothing on
// Proxmox or on a machine changes. What the state has already is left as it is, so that an import can be repeated. It
// returns the names of what it added, and the commands that remove on Proxmox what cannot be imported and is in the way
// of the next up.
func (d Deployed) Import(
	ctx context.Context, bundles map[string][]byte, now time.Time,
) (names, byHand []string, err error) {
	i := importing{Deployed: d, has: map[string]bool{}, clusters: map[string]bool{}}

	_, deployment, err := recovery.ReadState(ctx, d.Pulumi, d.Stack)
	if err != nil {
		return nil, nil, err
	}

	for _, r := range deployment.Resources {
		i.has[string(r.Type)+r.URN.Name()] = true
	}

	for cluster, bundle := range bundles {
		if err := i.addCluster(cluster, bundle, now); err != nil {
			return nil, nil, err
		}
	}

	if err := i.addMachines(ctx); err != nil {
		return nil, nil, err
	}

	if err := i.addAccounts(ctx); err != nil {
		return nil, nil, err
	}

	i.add(imported{
		Type: tokens.Record, Logical: "record", Component: true, Outputs: object{"deployed": true, "id": i.id},
	})

	names, err = i.run(ctx)

	return names, slices.Sorted(slices.Values(i.byHand)), err
}

// add adds what the state does not have. The CLI itself passes over components that it has.
func (i *importing) add(r imported) {
	if r.Name = r.Type + r.Logical; r.Component || !i.has[r.Name] {
		i.list = append(i.list, r)
	}
}

// secretsMeta is the provider's own note that the secrets have the form of its present version.
const secretsMeta = `{"schema_version":"1"}` //nolint:gosec // a number

// addCluster adds a cluster with its machine secrets. They are for the version contract that new ones of the plan's
// Talos get: the provider's own import would record v1.3 and have configurations generated for that.
func (i *importing) addCluster(name string, bundle []byte, now time.Time) error {
	chosen, err := i.Deployed.clusters([]string{name})
	if err != nil {
		return err
	}

	release, err := talos.ReleaseOf(chosen[0].TalosVersion)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", name, err)
	}

	machine, client, err := talos.ProviderSecrets(bundle, now)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", name, err)
	}

	secrets := imported{
		Type: tokens.Secrets, Logical: name + tokens.OfSecrets, Parent: tokens.TalosCluster + name, ID: "machine_secrets",
		Version: tokens.TalosPlugin.Version, Server: tokens.TalosPlugin.Server,
		Inputs:  object{"talosVersion": release.Contract},
		Outputs: object{"talosVersion": release.Contract, "__meta": secretsMeta},
	}
	if err := sealOutputs(object{"outputs": secrets.Outputs}, object{
		"machineSecrets": machine, "clientConfiguration": client,
	}); err != nil {
		return err
	}

	i.clusters[name] = true

	i.add(imported{Type: tokens.TalosCluster, Logical: name, Component: true})
	i.add(secrets)

	return nil
}

// addMachines adds the planned machines that Proxmox has.
func (i *importing) addMachines(ctx context.Context) error {
	proxmox := i.Proxmox()

	listed, err := proxmox.List(ctx)
	if err != nil {
		return fmt.Errorf("unable to list the machines of Proxmox: %w", err)
	}

	planned := map[int]spec.Member{}

	for _, m := range i.Plan.Members() {
		if m.Of == nil || i.clusters[m.Of.Name] {
			planned[m.VMID] = m
		}
	}

	for _, vm := range listed {
		m, wanted := planned[vm.VMID]
		if !wanted || i.has[tokens.VirtualMachine+m.Name+tokens.OfVM] {
			continue
		}

		if vm.Name != m.Name {
			i.problems.Add(m.Path, nil, "%s is planned with VMID %d, and on Proxmox that is %s: a machine is imported by its "+
				"name and VMID; set its VMID with nodes.<n>.vmid, or rename it", m.Name, vm.VMID, vm.Name)

			continue
		}

		found, err := proxmox.Find(ctx, vm.Host, vm.VMID)
		if err != nil {
			return fmt.Errorf("unable to read VM %d of Proxmox: %w", vm.VMID, err)
		}

		i.addMachine(m, vm.Host, string(found.Config["description"]))
	}

	if err := i.addMappings(ctx); err != nil {
		return err
	}

	if len(i.problems) > 0 {
		return fmt.Errorf("nothing was imported:\n%w", i.problems.Sorted())
	}

	return nil
}

// owner is the stack by its name, which is all that a stack without a state knows of itself.
func (i *importing) owner() ownership.Owner {
	return ownership.Owner{Name: namespace + "/" + i.Stack[strings.LastIndex(i.Stack, "/")+1:]}
}

// addMappings adds the PCI mappings that the stack made for the planned GPUs before its state was lost. Those of others
// stay theirs: other machines may use them.
func (i *importing) addMappings(ctx context.Context) error {
	var listed []proxmoxapi.Mapping

	used := map[string]bool{}

	for _, m := range i.Plan.Members() {
		for _, gpu := range m.GPUs {
			used[gpu.Name] = !gpu.Raw
		}
	}

	if len(used) == 0 {
		return nil
	}

	if err := i.Proxmox().Get(ctx, proxmoxapi.PathMappings, &listed); err != nil {
		return fmt.Errorf("unable to list the PCI mappings of Proxmox: %w", err)
	}

	for _, mapping := range listed {
		owner, marked := ownership.OwnerOf(mapping.Comment)
		if !used[mapping.Name] || !marked || !owner.IsNamesake(i.owner()) {
			continue
		}

		i.add(imported{Type: components.PCIMappingType, Logical: mapping.Name, Component: true})
		i.addProxmox(tokens.PCIMapping, mapping.Name+tokens.OfMapping, components.PCIMappingType+mapping.Name, mapping.Name)
	}

	return nil
}

// addAccounts adds the accounts of the clusters' software that the stack made before its state was lost: users, and the
// roles made for them. Proxmox tells a token's secret once, so that tokens are removed by hand and made again. Access
// rules are none: making them again is nothing.
func (i *importing) addAccounts(ctx context.Context) error {
	var (
		users []proxmoxapi.User
		roles []proxmoxapi.Role
	)

	for _, c := range i.Plan.Clusters {
		if c.Proxmox == nil || !i.clusters[c.Name] {
			continue
		}

		if users == nil {
			err := errors.Join(
				i.Proxmox().Get(ctx, proxmoxapi.PathUsers, &users), i.Proxmox().Get(ctx, proxmoxapi.PathRoles, &roles),
			)
			if err != nil {
				return fmt.Errorf("unable to list the accounts of Proxmox: %w", err)
			}
		}

		for _, of := range []struct {
			name     string
			identity *spec.Identity
		}{{c.Name + "-csi", c.Proxmox.CSI}, {c.Name + "-ccm", c.Proxmox.CloudController}} {
			if of.identity == nil || !i.addUser(c.Name, of.name, of.identity, users) {
				continue
			}

			for _, role := range roles {
				suffix, own := strings.CutPrefix(role.ID, of.identity.Account)
				if own && (suffix == "-machines" || suffix == "-storage") {
					i.addProxmox(tokens.Role, of.name+suffix, tokens.TalosCluster+c.Name, role.ID)
				}
			}
		}
	}

	return nil
}

// addUser adds the user of an account, and says whether the stack made it.
func (i *importing) addUser(cluster, name string, identity *spec.Identity, users []proxmoxapi.User) bool {
	at := slices.IndexFunc(users, func(u proxmoxapi.User) bool { return u.ID == identity.Account+"@pve" })
	if at < 0 {
		return false
	}

	user := users[at]
	if owner, marked := ownership.OwnerOf(user.Comment); !marked || !owner.IsNamesake(i.owner()) {
		return false
	}

	i.addProxmox(tokens.User, name, tokens.TalosCluster+cluster, user.ID)

	for _, number := range identity.Tokens {
		for _, token := range user.Tokens {
			known := i.has[tokens.UserToken+fmt.Sprintf("%s-token-%d", name, number)]
			if token.ID == fmt.Sprintf("kubernetes-%d", number) && !known {
				i.byHand = append(i.byHand, fmt.Sprintf("pveum user token remove %s %s", user.ID, token.ID))
			}
		}
	}

	return true
}

// addProxmox adds a resource of the provider for Proxmox.
func (i *importing) addProxmox(kind, name, parent, id string) {
	i.add(imported{
		Type: kind, Logical: name, Parent: parent, ID: id,
		Version: tokens.ProxmoxPlugin.Version, Server: tokens.ProxmoxPlugin.Server,
	})
}

// addMachine adds a machine and the components that it is in.
func (i *importing) addMachine(m spec.Member, host, description string) {
	owner, marked := ownership.OwnerOf(description)
	if marked && !owner.IsNamesake(i.owner()) {
		i.problems.Add(m.Path, nil, "%s, VM %d, belongs to the stack %s: leave it, and choose another VMID", m.Name, m.VMID,
			owner)

		return
	}

	if marked {
		i.id = owner.ID
	}

	kind, parent := components.CloudMachineType, ""

	if m.Of != nil {
		kind, parent = components.TalosNodeType, tokens.TalosCluster+m.Of.Name
	}

	if len(m.GPUs) > 0 {
		i.add(imported{Type: components.GPUWorkerType, Logical: m.Name, Parent: parent, Component: true})
		parent = components.GPUWorkerType + m.Name
	}

	i.add(imported{Type: kind, Logical: m.Name, Parent: parent, Component: true})
	i.addProxmox(tokens.VirtualMachine, m.Name+tokens.OfVM, kind+m.Name, fmt.Sprintf("%s/%d", host, m.VMID))
}

// errNothing is of an import that would add nothing.
var errNothing = errors.New("there is nothing to import: Proxmox has no machine of the plan that the state does not " +
	"have, or the machine secrets of its cluster are not named")

// run has the Pulumi CLI import the list, which it gets on standard input: secrets are in it. Resources stay protected
// until the program says in its next run which are.
func (i *importing) run(ctx context.Context) (names []string, err error) {
	for _, r := range i.list {
		if !r.Component {
			names = append(names, r.Logical)
		}
	}

	if len(names) == 0 {
		return nil, errNothing
	}

	text, err := json.Marshal(object{"resources": i.list})
	if err != nil {
		return nil, fmt.Errorf("unable to write the import: %w", err)
	}

	_, err = i.Pulumi(ctx, bytes.NewReader(text), "import", "--stack", i.Stack, "--file", "/dev/stdin",
		"--generate-code=false", "--skip-preview", "--yes")
	if err != nil {
		return nil, fmt.Errorf("unable to import into stack %q: %w", i.Stack, err)
	}

	return names, nil
}
