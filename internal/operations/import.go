package operations

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
	"talos-proxmox/stacks"
)

// importResource is a resource in the file of `pulumi import`: one with an id is read from its provider, one with
// outputs is imported with these.
type importResource struct {
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

// importer collects the machines to import into a stack's state.
type importer struct {
	Deployed

	existing       map[string]bool // resources in the state, by type and name
	stackID        string          // in the machines' markers
	clusters       map[string]bool // those with machine secrets
	resources      []importResource
	manualCommands []string // to run on a Proxmox host
	problems       problem.List
}

// Import adds running machines, and the machine secrets of their clusters, to the state of a stack: machines of others,
// or of the stack itself after its state was lost. Bundles are machine secrets by cluster, as `talosctl gen secrets`
// writes them; a cluster without one is left out. A machine matches the plan by VMID and name. Nothing on Proxmox or on
// a machine changes, and resources in the state stay as they are, so an import can be repeated. It returns the names of
// the added resources, and the commands that remove objects on Proxmox that cannot be imported and block the next up.
func (d Deployed) Import(
	ctx context.Context, bundles map[string][]byte, now time.Time,
) (names, manualCommands []string, err error) {
	i := importer{Deployed: d, existing: map[string]bool{}, clusters: map[string]bool{}}

	_, deployment, err := recovery.ReadState(ctx, d.Pulumi, d.Stack)
	if err != nil {
		return nil, nil, err
	}

	for _, r := range deployment.Resources {
		i.existing[string(r.Type)+r.URN.Name()] = true
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

	i.add(importResource{
		Type: tokens.Record, Logical: "record", Component: true, Outputs: object{"deployed": true, "id": i.stackID},
	})

	names, err = i.run(ctx)

	return names, slices.Sorted(slices.Values(i.manualCommands)), err
}

// add adds a resource that the state does not have. The CLI itself ignores components that exist.
func (i *importer) add(r importResource) {
	if r.Name = r.Type + r.Logical; r.Component || !i.existing[r.Name] {
		i.resources = append(i.resources, r)
	}
}

// secretsMeta is the provider's record of the schema version of the secrets.
const secretsMeta = `{"schema_version":"1"}` //nolint:gosec // a number

// addCluster adds a cluster with its machine secrets. Their version contract is the one that new secrets of the planned
// Talos version get, see [talos.ContractOfSecrets]: the provider's own import would record v1.3 and generate
// configurations for that.
func (i *importer) addCluster(name string, bundle []byte, now time.Time) error {
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

	contract := talos.ContractOfSecrets(machine, release)

	secrets := importResource{
		Type: tokens.Secrets, Logical: name + tokens.OfSecrets, Parent: tokens.TalosCluster + name, ID: "machine_secrets",
		Version: tokens.TalosPlugin.Version, Server: tokens.TalosPlugin.Server,
		Inputs:  object{"talosVersion": contract},
		Outputs: object{"talosVersion": contract, "__meta": secretsMeta},
	}
	if err := setSecretOutputs(object{"outputs": secrets.Outputs}, object{
		"machineSecrets": machine, "clientConfiguration": client,
	}); err != nil {
		return err
	}

	i.clusters[name] = true

	i.add(importResource{Type: tokens.TalosCluster, Logical: name, Component: true})
	i.add(secrets)

	return nil
}

// addMachines adds the planned machines that exist on Proxmox.
func (i *importer) addMachines(ctx context.Context) error {
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
		m, found := planned[vm.VMID]
		if !found || i.existing[tokens.VirtualMachine+m.Name+tokens.OfVM] {
			continue
		}

		if vm.Name != m.Name {
			i.problems.Add(m.Path, nil, "%s is planned with VMID %d, and on Proxmox that is %s: a machine is imported by its "+
				"name and VMID; set its VMID with nodes.<n>.vmid, or rename it", m.Name, vm.VMID, vm.Name)

			continue
		}

		machine, err := proxmox.Find(ctx, vm.Host, vm.VMID)
		if err != nil {
			return fmt.Errorf("unable to read VM %d of Proxmox: %w", vm.VMID, err)
		}

		i.addMachine(m, vm.Host, machine)
	}

	if err := i.addMappings(ctx); err != nil {
		return err
	}

	if len(i.problems) > 0 {
		return fmt.Errorf("nothing was imported:\n%w", i.problems.Sorted())
	}

	return nil
}

// owner returns the stack by its name only, because a stack without a state does not know its id.
func (i *importer) owner() ownership.Owner {
	return ownership.Owner{Name: stacks.Project + "/" + i.Stack[strings.LastIndex(i.Stack, "/")+1:]}
}

// addMappings adds the mappings of the planned devices that the stack created before its state was lost. Mappings of
// others are left alone: other machines may use them.
func (i *importer) addMappings(ctx context.Context) error {
	pci, usb := map[string]bool{}, map[string]bool{}

	for _, m := range i.Plan.Members() {
		for _, device := range m.AllDevices() {
			if device.Kind == spec.USBDevice {
				usb[device.Name] = true
			} else {
				pci[device.Name] = !device.Raw
			}
		}
	}

	for _, kind := range []struct {
		used                        map[string]bool
		path, component, ofProvider string
	}{
		{pci, proxmoxapi.PathPCIMappings, components.PCIMappingType, tokens.PCIMapping},
		{usb, proxmoxapi.PathUSBMappings, components.USBMappingType, tokens.USBMapping},
	} {
		if len(kind.used) == 0 {
			continue
		}

		var listed []proxmoxapi.Mapping
		if err := i.Proxmox().Get(ctx, kind.path, &listed); err != nil {
			return fmt.Errorf("unable to list the mappings of Proxmox: %w", err)
		}

		for _, mapping := range listed {
			owner, marked := ownership.OwnerOf(mapping.Comment)
			if !kind.used[mapping.Name] || !marked || !owner.IsNamesake(i.owner()) {
				continue
			}

			i.add(importResource{Type: kind.component, Logical: mapping.Name, Component: true})
			i.addProxmox(kind.ofProvider, mapping.Name+tokens.OfMapping, kind.component+mapping.Name, mapping.Name)
		}
	}

	return nil
}

// addAccounts adds the accounts of the clusters' software that the stack created before its state was lost: users and
// their roles. Proxmox shows a token's secret only once, so tokens are removed manually and created again. ACL entries
// are not imported: creating an existing one changes nothing.
func (i *importer) addAccounts(ctx context.Context) error {
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

		for _, account := range []struct {
			name     string
			identity *spec.Identity
		}{{c.Name + "-csi", c.Proxmox.CSI}, {c.Name + "-ccm", c.Proxmox.CloudController}} {
			if account.identity == nil || !i.addUser(c.Name, account.name, account.identity, users) {
				continue
			}

			for _, role := range roles {
				suffix, own := strings.CutPrefix(role.ID, account.identity.Account)
				if own && (suffix == "-machines" || suffix == "-storage") {
					i.addProxmox(tokens.Role, account.name+suffix, tokens.TalosCluster+c.Name, role.ID)
				}
			}
		}
	}

	return nil
}

// addUser adds the user of an account, and reports whether the stack created it.
func (i *importer) addUser(cluster, name string, identity *spec.Identity, users []proxmoxapi.User) bool {
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
			known := i.existing[tokens.UserToken+fmt.Sprintf("%s-token-%d", name, number)]
			if token.ID == fmt.Sprintf("kubernetes-%d", number) && !known {
				i.manualCommands = append(i.manualCommands, fmt.Sprintf("pveum user token remove %s %s", user.ID, token.ID))
			}
		}
	}

	return true
}

// addProxmox adds a resource of the Proxmox provider.
func (i *importer) addProxmox(kind, name, parent, id string) {
	i.add(importResource{
		Type: kind, Logical: name, Parent: parent, ID: id,
		Version: tokens.ProxmoxPlugin.Version, Server: tokens.ProxmoxPlugin.Server,
	})
}

// addMachine adds a machine and its components, with its creation id: the next run gives it the stack's marker.
func (i *importer) addMachine(m spec.Member, host string, machine proxmoxapi.Machine) {
	owner, marked := ownership.OwnerOf(string(machine.Config["description"]))
	if marked && !owner.IsNamesake(i.owner()) {
		i.problems.Add(m.Path, nil, "%s, VM %d, belongs to the stack %s: leave it, and choose another VMID", m.Name, m.VMID,
			owner)

		return
	}

	if marked {
		i.stackID = owner.ID
	}

	kind, parent := components.CloudMachineType, ""

	if m.Of != nil {
		kind, parent = components.TalosNodeType, tokens.TalosCluster+m.Of.Name
	}

	if len(m.GPUs) > 0 {
		i.add(importResource{Type: components.GPUWorkerType, Logical: m.Name, Parent: parent, Component: true})
		parent = components.GPUWorkerType + m.Name
	}

	i.add(importResource{
		Type: kind, Logical: m.Name, Parent: parent, Component: true,
		Outputs: object{"vmid": m.VMID, "creationId": machine.CreationID()},
	})
	i.addProxmox(tokens.VirtualMachine, m.Name+tokens.OfVM, kind+m.Name, fmt.Sprintf("%s/%d", host, m.VMID))
}

var errNothingToImport = errors.New("there is nothing to import: Proxmox has no machine of the plan that the state does not " +
	"have, or the machine secrets of its cluster are not named")

// run has the Pulumi CLI import the resources from standard input, because they contain secrets. Imported resources are
// protected until the next run of the program sets their protection.
func (i *importer) run(ctx context.Context) (names []string, err error) {
	for _, r := range i.resources {
		if !r.Component {
			names = append(names, r.Logical)
		}
	}

	if len(names) == 0 {
		return nil, errNothingToImport
	}

	text, err := json.Marshal(object{"resources": i.resources})
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
