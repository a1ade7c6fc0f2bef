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

// virtualMachineType returns the resource type of machines and templates.
func virtualMachineType() *resourceType {
	table := virtualMachineTable()

	return &resourceType{
		token: typeVirtualMachine, attributes: table, uniqueName: true,
		planError: planErrorVM, suppressDiff: suppressVM, updatesInPlace: migratesVM,
		outputChanges: missingOutputs, recomputedOutputs: recomputedOutputs,
		parseImportID: parseVMImportID, create: createVM, read: readVM,
		update: func(ctx context.Context, a *api, id string, plan, state object) (object, error) {
			after, err := newVMUpdate(a, table, id, plan, state).run(ctx)
			if errors.Is(err, errStartWarning) {
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

// parseVMImportID parses <host>/<vmid>. Any host will do: the machine is located by its VMID.
func parseVMImportID(id string) (string, object, error) {
	host, vmid, found := strings.Cut(id, "/")
	if !found {
		return "", nil, fmt.Errorf("unexpected format of ID (%s), expected node/id", id)
	}

	return vmid, object{"nodeName": host}, nil
}

// planErrorVM returns the published provider's error for a machine without network devices, whose default, an empty
// device, does not pass the bridge. It also refuses clones of another host's template, which the program never
// creates.
func planErrorVM(plan object) error {
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

// suppressVM removes differences that the published provider ignores.
func suppressVM(plan, state object) {
	// As published, descriptions are trimmed, because Proxmox trims them.
	if strings.TrimSpace(str(plan, "description")) == str(state, "description") && plan["description"] != (unknown{}) {
		plan["description"] = state["description"]
	}

	if flag(plan, "template") && flag(state, "template") {
		plan["started"] = state["started"]
	}

	// As published, an empty list of disks is ignored.
	disks, ok := plan["disks"].([]any)
	if ok && len(disks) == 0 || sameDisks(children(plan, "disks"), children(state, "disks")) {
		plan["disks"] = state["disks"]
	}

	next, before := child(plan, "initialization"), child(state, "initialization")
	if next == nil || before == nil {
		return
	}

	if str(next, "interface") == "" {
		next["interface"] = before["interface"]
	}

	// Proxmox returns asterisks instead of passwords.
	account, old := child(next, "userAccount"), child(before, "userAccount")
	if password := str(old, "password"); account != nil && password != "" && strings.Trim(password, "*") == "" {
		account["password"] = password
	}
}

// sameDisks compares disks without their order and their volumes' names.
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
		if !ok || !disk.equal(other, d) {
			return false
		}
	}

	return true
}

// migratesVM reports whether a new host is a migration, which the program must allow.
func migratesVM(path string, plan, _ object) bool { return path == "nodeName" && flag(plan, "migrate") }

// recomputedOutputs returns the outputs that become unknown if the guest's network changes.
func recomputedOutputs(plan, state object) []string {
	table := virtualMachineTable()
	if table["started"].equal(plan["started"], state["started"]) &&
		table["networkDevices"].equal(plan["networkDevices"], state["networkDevices"]) {
		return nil
	}

	return []string{"ipv4Addresses", "ipv6Addresses", "networkInterfaceNames"}
}

// missingOutputs adds the lists that only a read of the machine sets. If an operation ended without one, the next
// update reads them and does nothing else.
func missingOutputs(_, state object, found differences) {
	for _, name := range []string{"ipv4Addresses", "ipv6Addresses", "networkInterfaceNames", "macAddresses"} {
		if state[name] == nil {
			found[name] = difference{p.Add, InPlace}
		}
	}
}

// createVM clones a template or creates a machine with new disks.
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
		err = startNewVM(ctx, m, plan)
	}

	if !exists {
		return "", nil, err
	}

	id := strconv.Itoa(m.id)
	if errors.Is(err, errStartWarning) {
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

// startNewVM starts a new machine, unless it is a template or must stay off.
func startNewVM(ctx context.Context, m machine, plan object) error {
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

// removeVM stops and deletes a VM. One that does not exist is no error.
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
		if isNotFound(err) {
			return nil
		}

		return err
	}

	// A failed read of the status shows that the VM is gone.
	for {
		status, err := m.status(ctx)
		if err != nil {
			return nil //nolint:nilerr // see above
		}

		if status.Status == "" {
			return fmt.Errorf("failed to delete VM \"%d\"", number)
		}

		if err := sleep(ctx, a.o.poll, nil); err != nil {
			return waitError(err, fmt.Sprintf("VM %d to disappear", number))
		}
	}
}

// cloneSource clones the source.
func cloneSource(ctx context.Context, m machine, plan object) error {
	clone := child(plan, "clone")
	source := machine{api: m.api, host: m.host, id: num(clone, "vmId")}

	f := form{"newid": strconv.Itoa(m.id), "full": formatBool(flag(clone, "full"))}
	f.setNonEmpty("storage", str(clone, "datastoreId"))
	f.setNonEmpty("description", str(plan, "description"))
	f.setNonEmpty("name", str(plan, "name"))
	f.setNonEmpty("pool", str(plan, "poolId"))

	err := m.api.retry(ctx, max(num(clone, "retries"), 1), 10, anyError, func() error {
		o := waitOptions{warnings: true, stopOnInterrupt: true}

		return m.api.runTask(ctx, http.MethodPost, source.path("clone"), f, o)
	})
	if err != nil {
		return fmt.Errorf("error waiting for VM clone: %w", err)
	}

	return nil
}

// migrate migrates the machine with its local disks.
func (m machine) migrate(ctx context.Context, params form) error {
	if err := m.api.runTask(ctx, http.MethodPost, m.path("migrate"), params, waitOptions{}); err != nil {
		return fmt.Errorf("error waiting for VM migration: %w", err)
	}

	return nil
}

var errEFIType = errors.New("the EFI disk of the template has no efitype, on which the published provider panics: " +
	"build the template with efitype=4m in its efidisk0")
