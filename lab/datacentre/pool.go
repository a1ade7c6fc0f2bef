package datacentre

import "strings"

// Pool is a resource pool. Its members are the VMs whose VM.Pool names it.
type Pool struct {
	ID      string `json:"id"`
	Comment string `json:"comment,omitempty"`
}

// AddPool makes a pool.
func (d *Datacentre) AddPool(p Pool) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.state.Pools[p.ID] != nil {
		return Refuse("create pool failed: pool '%s' already exists", p.ID)
	}

	if i := strings.LastIndexByte(p.ID, '/'); i > 0 && d.state.Pools[p.ID[:i]] == nil {
		return Refuse("create pool failed: parent '%s' of pool '%s' does not exist", p.ID[:i], p.ID)
	}

	d.state.Pools[p.ID] = &p

	return nil
}

// SetPool replaces a pool that there is.
func (d *Datacentre) SetPool(p Pool) { put(d, d.state.Pools, p.ID, p) }

// MoveToPool puts VMs into a pool, or with an empty one out of theirs.
func (d *Datacentre) MoveToPool(pool string, vmids ...int) {
	d.mu.Lock()
	defer d.mu.Unlock()

	for _, id := range vmids {
		if v := d.state.VMs[id]; v != nil {
			v.Pool = pool
		}
	}
}

// DeletePool removes an empty pool.
func (d *Datacentre) DeletePool(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.state.Pools[id] == nil {
		return Refuse("delete pool failed: pool '%s' does not exist", id)
	}

	for _, v := range d.sortedVMs() {
		if v.Pool == id {
			return Refuse("delete pool failed: pool '%s' is not empty (contains VM %d)", id, v.ID)
		}
	}

	delete(d.state.Pools, id)

	return nil
}

// Pools returns the pools by id.
func (d *Datacentre) Pools() map[string]Pool { return copied(d, d.state.Pools) }
