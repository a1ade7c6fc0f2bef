package datacentre

import (
	"maps"
	"slices"
	"strings"
)

// Pool is a resource pool. Its members are the VMs whose VM.Pool names it.
type Pool struct {
	ID       string   `json:"id"`
	Comment  string   `json:"comment,omitempty"`
	Storages []string `json:"storages,omitempty"`
}

// AddPool makes a pool.
func (d *Datacentre) AddPool(p Pool) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.state.Pools[p.ID] != nil {
		return refuse("create pool failed: pool '%s' already exists", p.ID)
	}

	if i := strings.LastIndexByte(p.ID, '/'); i > 0 && d.state.Pools[p.ID[:i]] == nil {
		return refuse("create pool failed: parent '%s' of pool '%s' does not exist", p.ID[:i], p.ID)
	}

	d.state.Pools[p.ID] = &p
	d.changed()

	return nil
}

// UpdatePool changes a pool with the function; the change is kept if it returns no error.
func (d *Datacentre) UpdatePool(id string, change func(*Pool) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	p := d.state.Pools[id]
	if p == nil {
		return refuse("update pools failed: pool '%s' does not exist", id)
	}

	next := *p
	next.Storages = slices.Clone(p.Storages)

	if err := change(&next); err != nil {
		return err
	}

	d.state.Pools[id] = &next
	d.changed()

	return nil
}

// SetPool puts a VM into a pool, or with an empty one out of its pool.
func (d *Datacentre) SetPool(vmid int, pool string) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if pool != "" && d.state.Pools[pool] == nil {
		return refuse("pool '%s' does not exist", pool)
	}

	v := d.state.VMs[vmid]
	if v == nil {
		return refuse("VM %d does not exist", vmid)
	}

	v.Pool = pool

	d.changed()

	return nil
}

// DeletePool removes an empty pool.
func (d *Datacentre) DeletePool(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	p := d.state.Pools[id]
	if p == nil {
		return refuse("delete pool failed: pool '%s' does not exist", id)
	}

	for _, v := range d.sortedVMs() {
		if v.Pool == id {
			return refuse("delete pool failed: pool '%s' is not empty (contains VM %d)", id, v.ID)
		}
	}

	if len(p.Storages) > 0 {
		return refuse("delete pool failed: pool '%s' is not empty (contains storage '%s')", id, p.Storages[0])
	}

	delete(d.state.Pools, id)
	d.changed()

	return nil
}

// Pools returns the pools by id.
func (d *Datacentre) Pools() []Pool {
	d.mu.Lock()
	defer d.mu.Unlock()

	list := make([]Pool, 0, len(d.state.Pools))
	for _, id := range slices.Sorted(maps.Keys(d.state.Pools)) {
		list = append(list, *d.state.Pools[id])
	}

	return list
}
