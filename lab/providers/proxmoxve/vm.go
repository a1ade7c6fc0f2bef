package proxmoxve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	p "github.com/pulumi/pulumi-go-provider"
)

const typeVirtualMachine = "proxmoxve:VM/virtualMachine:VirtualMachine"

// virtualMachineType is the resource of machines and templates.
func virtualMachineType() *resourceType {
	table := virtualMachine()

	return &resourceType{
		token: typeVirtualMachine, attributes: table, named: true,
		planFails: unplannable,
		suppress:  suppressVM, keeps: keepsVM, moreChanges: unread, recomputes: recomputedOutputs,
		imported: importedVM, create: createVM, read: readVM,
		update: func(ctx context.Context, a *api, id string, plan, state object) (object, error) {
			after, err := newChange(a, table, id, plan, state).run(ctx)
			if errors.Is(err, errWarned) {
				for _, name := range recomputedOutputs(plan, state) {
					delete(plan, name)
				}

				return plan, nil
			}

			return after, err
		},
		remove: removeVM,
	}
}

// importedVM reads <host>/<vmid>. The host need not be the machine's, which is asked for by its VMID.
func importedVM(id string) (string, object, error) {
	host, vmid, found := strings.Cut(id, "/")
	if !found {
		return "", nil, fmt.Errorf("unexpected format of ID (%s), expected node/id", id)
	}

	return vmid, object{"nodeName": host}, nil
}

// unplannable is the published provider's answer to a machine that states no network devices: its default, one empty
// device, does not pass the bridge. A copy of another host's template is what the program never makes.
func unplannable(plan object) error {
	if plan["networkDevices"] == nil {
		return errors.New(
			"[network_device[0]] Null value found in list: Null values are not allowed for this attribute value",
		)
	}

	if host := str(child(plan, "clone"), "nodeName"); host != "" && host != str(plan, "nodeName") {
		return fmt.Errorf("the lab's stand-in clones templates of the machine's own host only, not of %s: "+
			"use one of that host, or run against the published provider", host)
	}

	return nil
}

// suppressVM takes back what the published provider does not count as a change.
func suppressVM(plan, state object) {
	// The published provider trims descriptions, because Proxmox does.
	if strings.TrimSpace(str(plan, "description")) == str(state, "description") && plan["description"] != (unknown{}) {
		plan["description"] = state["description"]
	}

	if flag(plan, "template") && flag(state, "template") {
		plan["started"] = state["started"]
	}

	// The published provider does not see a list of no disks.
	stated, ok := plan["disks"].([]any)
	if ok && len(stated) == 0 || sameDisks(children(plan, "disks"), children(state, "disks")) {
		plan["disks"] = state["disks"]
	}

	next, before := child(plan, "initialization"), child(state, "initialization")
	if next == nil || before == nil {
		return
	}

	if str(next, "interface") == "" {
		next["interface"] = before["interface"]
	}

	// Proxmox answers passwords with asterisks.
	account, old := child(next, "userAccount"), child(before, "userAccount")
	if password := str(old, "password"); account != nil && password != "" && strings.Trim(password, "*") == "" {
		account["password"] = password
	}
}

// sameDisks compares disks without their order, leaving out where Proxmox put them.
func sameDisks(x, y []object) bool {
	if len(x) != len(y) || len(x) == 0 {
		return false
	}

	byInterface := map[string]object{}
	for _, d := range x {
		byInterface[str(d, "interface")] = d
	}

	disk := attribute{kind: block, fields: diskTable()}
	delete(disk.fields, "pathInDatastore")

	for _, d := range y {
		other, ok := byInterface[str(d, "interface")]
		if !ok || !disk.same(other, d) {
			return false
		}
	}

	return true
}

// keepsVM tells that a new host is a migration where the program allows it.
func keepsVM(path string, plan, _ object) bool { return path == "nodeName" && flag(plan, "migrate") }

// recomputedOutputs are unknown in a preview of what changes the guest's network.
func recomputedOutputs(plan, state object) []string {
	table := virtualMachine()
	if table["started"].same(plan["started"], state["started"]) &&
		table["networkDevices"].same(plan["networkDevices"], state["networkDevices"]) {
		return nil
	}

	return []string{"ipv4Addresses", "ipv6Addresses", "networkInterfaceNames"}
}

// unread are the lists that only a look at the machine fills. Where an operation ended without one, the next update
// comes back for them and does nothing else.
func unread(_, state object, found differences) {
	for _, name := range []string{"ipv4Addresses", "ipv6Addresses", "networkInterfaceNames", "macAddresses"} {
		if state[name] == nil {
			found[name] = difference{p.Add, InPlace}
		}
	}
}

// createVM clones or creates, as the program states.
func createVM(ctx context.Context, a *api, plan object) (string, object, error) {
	if num(plan, "vmId") == 0 {
		return "", nil, errors.New("the lab's stand-in chooses no VMID: state `vmId`, or run against the published provider")
	}

	limit, build := "timeoutCreate", buildVM
	if child(plan, "clone") != nil {
		limit, build = "timeoutClone", cloneVM
	}

	ctx, cancel := context.WithTimeout(ctx, seconds(plan, limit))
	defer cancel()

	m := machine{api: a, host: str(plan, "nodeName"), id: num(plan, "vmId")}

	exists, err := build(ctx, m, plan)
	if err == nil {
		err = powerUp(ctx, m, plan)
	}

	if !exists {
		return "", nil, err
	}

	id := strconv.Itoa(m.id)
	if errors.Is(err, errWarned) {
		return id, plan, nil
	}

	if err != nil {
		return id, plan, err
	}

	state, err := readVM(ctx, a, id, plan)
	if err == nil && state == nil {
		err = fmt.Errorf("VM %d vanished while it was created: run the update again", m.id)
	}

	if err != nil {
		return id, plan, err
	}

	return id, state, nil
}

// powerUp starts a new machine, unless it is a template or meant to stay off.
func powerUp(ctx context.Context, m machine, plan object) error {
	if !flag(plan, "started") || flag(plan, "template") {
		return nil
	}

	if err := m.start(ctx, plan); err != nil {
		return err
	}

	if flag(plan, "reboot") {
		return m.reboot(ctx, plan)
	}

	return nil
}

// removeVM switches off and destroys; a VM that is gone is removed already.
func removeVM(ctx context.Context, a *api, id string, state object) error {
	ctx, cancel := context.WithTimeout(ctx, max(seconds(state, "timeoutStopVm"), seconds(state, "timeoutShutdownVm")))
	defer cancel()

	number, err := strconv.Atoi(id)
	if err != nil {
		return fmt.Errorf("unable to read the VM id %q: %w", id, err)
	}

	m := machine{api: a, host: str(state, "nodeName"), id: number}

	status, err := m.status(ctx)
	if err != nil {
		return err
	}

	if status.Status != "stopped" {
		halt := m.shutdown
		if flag(state, "stopOnDestroy") {
			halt = m.stop
		}

		if err := halt(ctx, state); err != nil {
			return err
		}
	}

	if err := m.destroy(ctx); err != nil {
		if gone(err) {
			return nil
		}

		return err
	}

	// Only a status that cannot be had any more shows that the VM is gone.
	for {
		status, err := m.status(ctx)
		if err != nil {
			return nil //nolint:nilerr // see above
		}

		if status.Status == "" {
			return fmt.Errorf("failed to delete VM \"%d\"", number)
		}

		if err := sleep(ctx, a.o.poll, nil); err != nil {
			return stopped(err, fmt.Sprintf("VM %d to disappear", number))
		}
	}
}

// cloneSource copies the source; the copy exists from then on.
func cloneSource(ctx context.Context, m machine, plan object) error {
	clone := child(plan, "clone")
	source := machine{api: m.api, host: m.host, id: num(clone, "vmId")}

	f := form{"newid": strconv.Itoa(m.id), "full": bit(flag(clone, "full"))}
	f.some("storage", str(clone, "datastoreId"))
	f.some("description", str(plan, "description"))
	f.some("name", str(plan, "name"))
	f.some("pool", str(plan, "poolId"))

	err := m.api.tries(ctx, max(num(clone, "retries"), 1), 10, always, func() error {
		return m.api.task(ctx, http.MethodPost, source.path("clone"), f, waitOptions{warnings: true, undo: true})
	})
	if err != nil {
		return fmt.Errorf("error waiting for VM clone: %w", err)
	}

	return nil
}

// migrate moves the machine with its local disks.
func (m machine) migrate(ctx context.Context, params form) error {
	if err := m.api.task(ctx, http.MethodPost, m.path("migrate"), params, waitOptions{}); err != nil {
		return fmt.Errorf("error waiting for VM migration: %w", err)
	}

	return nil
}

var errEFIType = errors.New("the EFI disk of the template has no efitype, on which the published provider panics: " +
	"build the template with efitype=4m in its efidisk0")
