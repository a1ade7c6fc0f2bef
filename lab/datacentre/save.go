package datacentre

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

// state is what the state file holds.
type state struct {
	Secret       []byte                `json:"secret"`
	NextPID      int                   `json:"nextPid"`
	VMs          map[int]*vm           `json:"vms"`
	Volumes      map[string]*Volume    `json:"volumes"`
	Tasks        []*Task               `json:"tasks"`
	Logs         map[string][]string   `json:"logs"`
	Users        map[string]*User      `json:"users"`
	Tokens       map[string]*Token     `json:"tokens"`
	Groups       map[string]*Group     `json:"groups"`
	Roles        map[string]*Role      `json:"roles"`
	ACL          []ACL                 `json:"acl"`
	Pools        map[string]*Pool      `json:"pools"`
	Mappings     map[string]*Mapping   `json:"mappings"`
	Hosts        map[string]*hostState `json:"hosts"`
	Leases       map[string]netip.Addr `json:"leases"`
	Reservations map[string]netip.Addr `json:"reservations"`
	Faults       []*Fault              `json:"faults"`
	NextFault    int                   `json:"nextFault"`
}

func newState() state {
	return state{
		Secret:   []byte(rand.Text()),
		NextPID:  1000,
		VMs:      map[int]*vm{},
		Volumes:  map[string]*Volume{},
		Tasks:    []*Task{},
		Logs:     map[string][]string{},
		Users:    map[string]*User{},
		Tokens:   map[string]*Token{},
		Groups:   map[string]*Group{},
		Roles:    map[string]*Role{},
		Pools:    map[string]*Pool{},
		Mappings: map[string]*Mapping{}, Hosts: map[string]*hostState{},
		Leases: map[string]netip.Addr{}, Reservations: map[string]netip.Addr{},
	}
}

func loadState(path string) (state, error) {
	s := newState()
	if path == "" {
		return s, nil
	}

	b, err := os.ReadFile(filepath.Clean(path))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}

	if err != nil {
		return s, fmt.Errorf("open the lab's state: %w", err)
	}

	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf(
			"the lab's state file %s is damaged: %w: remove it to start with an empty data centre", path, err,
		)
	}

	// Earlier labs kept a copy of the files that lie on the hosts.
	maps.DeleteFunc(s.Volumes, func(_ string, v *Volume) bool { return v.Content != "images" })

	for _, f := range s.Faults {
		if f.path, err = regexp.Compile(f.Path); err != nil {
			return s, fmt.Errorf(
				"the lab's state file %s is damaged: fault %d: %w: remove it to start with an empty data centre", path, f.ID, err,
			)
		}
	}

	return s, nil
}

// guard is the lock of the state. Who gives it back may have changed the state, which is saved then; who only
// reads gives back the mutex itself.
type guard struct {
	sync.Mutex
	// dirty holds something while there may be changes to save.
	dirty chan struct{}
}

// Unlock gives the lock back, and has the state saved.
func (g *guard) Unlock() {
	g.Mutex.Unlock()

	select {
	case g.dirty <- struct{}{}:
	default: // it is to be saved already
	}
}

// put adds or replaces a thing of the state.
func put[T any](d *Datacentre, things map[string]*T, id string, v T) {
	d.mu.Lock()
	defer d.mu.Unlock()

	things[id] = &v
}

// remove takes a thing away, with the access rules of its kind that name it.
func remove[T any](d *Datacentre, things map[string]*T, id, kind string) {
	d.mu.Lock()
	defer d.mu.Unlock()

	delete(things, id)
	d.dropRules(func(a ACL) bool { return a.Kind == kind && a.ID == id })
}

// copied are the things of a kind by their ids.
func copied[T any](d *Datacentre, things map[string]*T) map[string]T {
	d.mu.Lock()
	defer d.mu.Mutex.Unlock()

	list := map[string]T{}
	for id, v := range things {
		list[id] = *v
	}

	return list
}

// keepSaved writes the state a little after a change, so that many changes make one file.
func (d *Datacentre) keepSaved() {
	defer d.workers.Done()

	for {
		select {
		case <-d.mu.dirty:
		case <-d.running.Done():
			return
		}

		select {
		case <-time.After(d.options.SaveDelay):
		case <-d.running.Done():
			return
		}

		if err := d.save(); err != nil {
			fmt.Fprintf(os.Stderr, "lab: %v\n", err)
		}
	}
}

func (d *Datacentre) save() error {
	if d.options.Path == "" {
		return nil
	}

	d.mu.Lock()
	b, err := json.Marshal(d.state)
	d.mu.Mutex.Unlock()

	if err != nil {
		return fmt.Errorf("save the lab's state: %w", err)
	}

	return writeAtomic(d.options.Path, b)
}

func writeAtomic(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // CreateTemp makes it 0600.
	if err != nil {
		return fmt.Errorf("save the lab's state: %w: make its folder writable", err)
	}

	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}

	if err == nil {
		err = os.Rename(f.Name(), path)
	}

	if err != nil {
		_ = os.Remove(f.Name())

		return fmt.Errorf("save the lab's state to %s: %w: is the disk full?", path, err)
	}

	return nil
}
