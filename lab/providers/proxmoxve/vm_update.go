package proxmoxve

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	p "github.com/pulumi/pulumi-go-provider"
)

// vmUpdate is an update of a VM: the collected changes, and the restart that they need.
type vmUpdate struct {
	m           machine
	table       attributes
	plan, state object
	config      map[string]string

	form   form
	del    []string
	reboot bool
	// stopped says that the VM was stopped for the change.
	stopped bool
}

func newVMUpdate(a *api, table attributes, id string, plan, state object) *vmUpdate {
	number, _ := strconv.Atoi(id) //nolint:errcheck // the ids are ours

	return &vmUpdate{
		m: machine{api: a, host: str(plan, "nodeName"), id: number}, table: table, plan: plan, state: state, form: form{},
	}
}

func (c *vmUpdate) changed(name string) bool {
	return !c.table[name].equal(c.plan[name], c.state[name])
}

// run has the published order: migrate, configure, start or stop, disks, restart.
func (c *vmUpdate) run(ctx context.Context) (object, error) {
	if err := c.changePoolAndHost(ctx); err != nil {
		return nil, err
	}

	var err error
	if c.config, err = c.m.config(ctx); err != nil {
		return nil, err
	}

	c.setValues()
	c.setCDROM()
	c.setDisks()
	c.setFirmwareDisks()

	if err := c.setCloudInit(ctx); err != nil {
		return nil, err
	}

	// The table says which changes need a restart of the guest.
	found := differences{}
	c.table.collectChanges("", InPlace, c.plan, c.state, found)

	for path, d := range found {
		newDisk := strings.HasPrefix(path, "disks") && d.kind == p.Add
		if d.effect == Restart && !newDisk || d.effect == Replace && path != "nodeName" {
			c.reboot = true
		}
	}

	if err := c.m.setConfig(ctx, c.form, c.del); err != nil {
		return nil, err
	}

	if err := c.setPower(ctx); err != nil {
		return nil, err
	}

	if err := c.resizeAndReboot(ctx); err != nil {
		return nil, err
	}

	return c.result(ctx)
}

// result reads the state after the update.
func (c *vmUpdate) result(ctx context.Context) (object, error) {
	state, err := readVM(ctx, c.m.api, strconv.Itoa(c.m.id), c.plan)
	if err == nil && state == nil {
		err = fmt.Errorf("VM %d vanished while it was changed: run `pulumi refresh`, then the update again", c.m.id)
	}

	return state, err
}

// changePoolAndHost changes the pool and migrates the VM.
func (c *vmUpdate) changePoolAndHost(ctx context.Context) error {
	if c.changed("poolId") {
		for _, step := range []struct{ pool, remove, doing string }{
			{str(c.state, "poolId"), "1", "removing VM %d from"}, {str(c.plan, "poolId"), "", "adding VM %d to"},
		} {
			if step.pool == "" {
				continue
			}

			f := form{"vms": strconv.Itoa(c.m.id)}
			f.setNonEmpty("delete", step.remove)

			if err := c.m.api.call(ctx, http.MethodPut, "/pools/"+step.pool, f, nil); err != nil {
				return fmt.Errorf("while "+step.doing+" pool %s: error updating pool: %w", c.m.id, step.pool, err)
			}
		}
	}

	if !c.changed("nodeName") {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, seconds(c.plan, "timeoutMigrate"))
	defer cancel()

	old := machine{api: c.m.api, host: str(c.state, "nodeName"), id: c.m.id}

	return old.migrate(ctx, form{"target": c.m.host, "with-local-disks": "1", "online": "1"})
}

// setValues adds changed values, the defaults of removed blocks, and always the name.
func (c *vmUpdate) setValues() {
	c.form["name"] = str(c.plan, "name")

	for name, a := range c.table {
		if !a.isConfigKey() || !c.changed(name) {
			continue
		}

		value := c.plan[name]
		if value == nil {
			value = a.fallback
		}

		c.del = append(c.del, a.encode(c.form, value)...)
		c.dropUnchanged(a.fields, child(c.plan, name), child(c.state, name))
	}
}

// dropUnchanged takes the fields of a changed block that are sent alone out of the request, unless they change.
func (c *vmUpdate) dropUnchanged(fields attributes, plan, state object) {
	for name, field := range fields {
		if field.alone && field.equal(plan[name], state[name]) {
			delete(c.form, field.key)
			c.del = slices.DeleteFunc(c.del, func(key string) bool { return key == field.key })
		}
	}
}

// setPower starts or stops the VM, and starts it again if setCloudInit stopped it.
func (c *vmUpdate) setPower(ctx context.Context) error {
	if flag(c.plan, "template") || !c.changed("started") && !c.stopped {
		return nil
	}

	if flag(c.plan, "started") {
		return c.m.start(ctx, c.plan)
	}

	c.reboot = false

	return c.m.shutdown(ctx, c.plan)
}

// resizeAndReboot moves and resizes disks, and reboots the guest if a change needs it.
func (c *vmUpdate) resizeAndReboot(ctx context.Context) error {
	template := flag(c.plan, "template")
	restart := c.reboot && !template

	if c.changed("disks") {
		restarted, err := c.resizeDisks(ctx)
		if err != nil {
			return err
		}

		restart = restart && !restarted
	}

	if !restart {
		return nil
	}

	status, err := c.m.status(ctx)
	if err != nil || status.Status == "stopped" {
		return err
	}

	return c.m.reboot(ctx, c.plan)
}
