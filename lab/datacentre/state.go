package datacentre

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// stateVersion is the version of the state file's format.
const stateVersion = 2

// state is the content of the state file.
type state struct {
	Version int                 `json:"version"`
	Secret  []byte              `json:"secret"`
	NextPID int                 `json:"nextPid"`
	VMs     map[int]*vm         `json:"vms"`
	Volumes map[string]*Volume  `json:"volumes"`
	Tasks   []*Task             `json:"tasks"`
	Logs    map[string][]string `json:"logs"`
	// Records are by kind and id.
	Records      map[Kind]map[string]Config `json:"records"`
	ACL          []ACL                      `json:"acl"`
	Storages     []StorageOptions           `json:"storages,omitempty"` // in addition to those of the hosts
	Hosts        map[string]*hostState      `json:"hosts"`
	Leases       map[string]netip.Addr      `json:"leases"`
	Reservations map[string]netip.Addr      `json:"reservations"`
	// Firewall are the options of the data centre's firewall.
	Firewall  Config   `json:"firewall,omitempty"`
	Faults    []*Fault `json:"faults"`
	NextFault int      `json:"nextFault"`
}

func newState() state {
	return state{
		Version: stateVersion,
		Secret:  []byte(rand.Text()),
		NextPID: 1000,
		VMs:     map[int]*vm{},
		Volumes: map[string]*Volume{},
		Tasks:   []*Task{},
		Logs:    map[string][]string{},
		Records: map[Kind]map[string]Config{},
		Hosts:   map[string]*hostState{},
		Leases:  map[string]netip.Addr{}, Reservations: map[string]netip.Addr{},
	}
}

func loadState(path string) (state, error) {
	b, err := os.ReadFile(filepath.Clean(path))
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		return newState(), nil
	}

	var s state

	if err != nil {
		return s, fmt.Errorf("open the lab's state: %w", err)
	}

	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf(
			"the lab's state file %s is damaged: %w: remove it to start with an empty data centre", path, err,
		)
	}

	if s.Version != stateVersion {
		return s, fmt.Errorf(
			"the lab's state file %s is another version's: run `make down` with that version, or remove the file's folder, "+
				"to start with an empty data centre", path,
		)
	}

	for _, t := range s.Tasks {
		if t.Running() { // it died with the process
			t.EndTime, t.ExitStatus = time.Now(), "unexpected status"
		}
	}

	return s, nil
}

// lockRead takes the lock of the state and returns the function that releases it.
func (d *Datacentre) lockRead() (done func()) {
	d.mu.Lock()

	return d.mu.Unlock
}

// lockWrite is lockRead for callers that change the state: it is saved after the release.
func (d *Datacentre) lockWrite() (done func()) {
	d.mu.Lock()

	return d.unlockWrite
}

// unlockWrite releases the lock and schedules a save.
func (d *Datacentre) unlockWrite() {
	d.mu.Unlock()

	select {
	case d.dirty <- struct{}{}:
	default: // a save is scheduled
	}
}

// saveLoop writes the state with a delay after a change, so that many changes share one write.
func (d *Datacentre) saveLoop() {
	for {
		select {
		case <-d.dirty:
		case <-d.ctx.Done():
			return
		}

		if sleepReal(d.ctx, d.options.SaveDelay) != nil {
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

	unlock := d.lockRead()
	b, err := json.Marshal(d.state)

	unlock()

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
