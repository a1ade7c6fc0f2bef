package proxmoxve

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	p "github.com/pulumi/pulumi-go-provider"
)

// change is one update of a VM: what differs, the request that is being put together, and what it needs afterwards.
type change struct {
	m           machine
	table       attributes
	plan, state object
	config      map[string]string

	form   form
	del    []string
	reboot bool
	// stopped is set when the VM had to be switched off for the change.
	stopped bool
}

func newChange(a *api, table attributes, id string, plan, state object) *change {
	number, _ := strconv.Atoi(id) //nolint:errcheck // the ids are ours

	return &change{
		m: machine{api: a, host: str(plan, "nodeName"), id: number}, table: table, plan: plan, state: state, form: form{},
	}
}

func (c *change) changed(name string) bool { return !c.table[name].same(c.plan[name], c.state[name]) }

// run keeps the published order: migrate, configure, power, disks, restart.
func (c *change) run(ctx context.Context) (object, error) {
	if err := c.relocate(ctx); err != nil {
		return nil, err
	}

	var err error
	if c.config, err = c.m.config(ctx); err != nil {
		return nil, err
	}

	c.values()
	c.cdrom()
	c.disks()
	c.firmware()

	if err := c.cloudInit(ctx); err != nil {
		return nil, err
	}

	// The table says which changes the guest must be restarted for.
	found := differences{}
	c.table.changes("", InPlace, c.plan, c.state, found)

	for path, d := range found {
		newDisk := strings.HasPrefix(path, "disks") && d.kind == p.Add
		if d.effect == Restart && !newDisk || d.effect == Replace && path != "nodeName" {
			c.reboot = true
		}
	}

	if err := c.m.set(ctx, c.form, c.del); err != nil {
		return nil, err
	}

	if err := c.power(ctx); err != nil {
		return nil, err
	}

	if err := c.finish(ctx); err != nil {
		return nil, err
	}

	return c.result(ctx)
}

// result is the state after the change, as Proxmox has it.
func (c *change) result(ctx context.Context) (object, error) {
	state, err := readVM(ctx, c.m.api, strconv.Itoa(c.m.id), c.plan)
	if err == nil && state == nil {
		err = fmt.Errorf("VM %d vanished while it was changed: run `pulumi refresh`, then the update again", c.m.id)
	}

	return state, err
}

// relocate changes the pool and migrates.
func (c *change) relocate(ctx context.Context) error {
	if c.changed("poolId") {
		for _, step := range []struct{ pool, remove, doing string }{
			{str(c.state, "poolId"), "1", "removing VM %d from"}, {str(c.plan, "poolId"), "", "adding VM %d to"},
		} {
			if step.pool == "" {
				continue
			}

			f := form{"vms": strconv.Itoa(c.m.id)}
			f.some("delete", step.remove)

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

// values adds what has changed, of a block that is not stated any more its default, and always the name.
func (c *change) values() {
	c.form["name"] = str(c.plan, "name")

	for name, a := range c.table {
		if !a.configured() || !c.changed(name) {
			continue
		}

		value := c.plan[name]
		if value == nil {
			value = a.fallback
		}

		c.del = append(c.del, a.encode(c.form, value)...)
	}
}

// power follows started, and starts again what cloudInit had to stop.
func (c *change) power(ctx context.Context) error {
	if flag(c.plan, "template") || !c.changed("started") && !c.stopped {
		return nil
	}

	if flag(c.plan, "started") {
		return c.m.start(ctx, c.plan)
	}

	c.reboot = false

	return c.m.shutdown(ctx, c.plan)
}

// finish moves and grows disks, and restarts the guest when a change needs it.
func (c *change) finish(ctx context.Context) error {
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
