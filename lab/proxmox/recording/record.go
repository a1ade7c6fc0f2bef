package recording

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// VMIDs that the recorder uses.
const firstVMID, lastVMID = 9900, 9999

// Record makes all calls, removes what they created, and returns the answers. It refuses an API that has objects with
// the recorder's names, and unless the caller allows it, one that has machines.
func (a *API) Record(ctx context.Context, amongMachines bool) (r Recording, err error) {
	if err := a.discover(ctx); err != nil {
		return r, err
	}

	if err := a.checkHarmless(ctx, amongMachines); err != nil {
		return r, err
	}

	defer func() {
		// Also after an interrupt.
		if removeErr := a.Remove(context.WithoutCancel(ctx)); removeErr != nil {
			err = errors.Join(err, fmt.Errorf("unable to remove what the recording created: %w", removeErr))
		}
	}()

	var version struct{ Version string }
	if err := a.get(ctx, "/version", &version); err != nil {
		return r, err
	}

	r = Recording{Version: version.Version, Date: time.Now().UTC().Format(time.DateOnly), Place: a.Place}
	r.Answers, err = a.Play(ctx)

	return r, err
}

// discover completes the place.
func (a *API) discover(ctx context.Context) error {
	if a.Place.Node == "" {
		var nodes []struct{ Node string }
		if err := a.get(ctx, "/nodes", &nodes); err != nil {
			return err
		}

		if len(nodes) == 0 {
			return errors.New("the token sees no host: use one of root@pam without privilege separation")
		}

		a.Place.Node = nodes[0].Node
	}

	for name, path := range map[string]*string{a.Place.Files: &a.Place.FilesPath, a.Place.Images: &a.Place.ImagesPath} {
		var storage struct{ Type, Path string }
		if err := a.get(ctx, "/storage/"+name, &storage); err != nil {
			return err
		}

		if storage.Type != "dir" {
			return fmt.Errorf("the storage %s is not a directory storage, which the calls require: name another, or add one with "+
				"`pvesm add dir NAME --path PATH --content images`", name)
		}

		*path = storage.Path
	}

	return nil
}

// checkHarmless refuses an API that a recording could harm.
func (a *API) checkHarmless(ctx context.Context, amongMachines bool) error {
	machines, err := a.listVMIDs(ctx)
	if err != nil {
		return err
	}

	objects, err := a.ownObjects(ctx)
	if err != nil {
		return err
	}

	for _, vmid := range machines {
		switch {
		case vmid >= firstVMID && vmid <= lastVMID:
			return fmt.Errorf("VM %d exists, and the recording creates its own VMs from %d to %d", vmid, firstVMID, lastVMID)
		case !amongMachines:
			return fmt.Errorf("this Proxmox VE has machines (VM %d): use a spare one, or set -among-machines", vmid)
		}
	}

	if len(objects) > 0 {
		return fmt.Errorf(
			"objects with the recorder's names exist: %s. If an interrupted recording left them, -remove removes them",
			strings.Join(objects, ", "),
		)
	}

	return nil
}

func (a *API) listVMIDs(ctx context.Context) ([]int, error) {
	var (
		list  []struct{ VMID int }
		vmids []int
	)

	err := a.get(ctx, "/cluster/resources?type=vm", &list)
	for _, m := range list {
		vmids = append(vmids, m.VMID)
	}

	slices.Sort(vmids)

	return vmids, err
}

// objectList is a list of objects other than machines, and the field with their id.
type objectList struct{ path, idField string }

// objectLists list what a recording creates, in the order of removal.
var objectLists = []objectList{
	{"/pools", "poolid"},
	{"/cluster/mapping/pci", "id"},
	{"/storage", "storage"},
	{"/access/users", "userid"},
	{"/access/groups", "groupid"},
	{"/access/roles", "roleid"},
}

// ownID matches the ids of the recorder's objects, files and disks.
var ownID = regexp.MustCompile(`^rec-|/rec-|:99\d\d/`)

// ownObjects returns the paths of the recorder's objects other than machines.
func (a *API) ownObjects(ctx context.Context) ([]string, error) {
	var found []string

	lists := slices.Clone(objectLists)
	for _, storage := range []string{a.Place.Files, a.Place.Images} {
		lists = append(lists, objectList{"/nodes/" + a.Place.Node + "/storage/" + storage + "/content", "volid"})
	}

	for _, list := range lists {
		var objects []map[string]any
		if err := a.get(ctx, list.path, &objects); err != nil {
			return nil, err
		}

		for _, o := range objects {
			if id := fmt.Sprint(o[list.idField]); ownID.MatchString(id) {
				found = append(found, list.path+"/"+url.PathEscape(id))
			}
		}
	}

	return found, nil
}

// Remove removes all machines and objects of the recorder.
func (a *API) Remove(ctx context.Context) error {
	if err := a.discover(ctx); err != nil {
		return err
	}

	machines, err := a.listVMIDs(ctx)
	if err != nil {
		return err
	}

	var problems []error

	// Linked clones, which have higher VMIDs, before their templates.
	for _, vmid := range slices.Backward(machines) {
		if vmid < firstVMID || vmid > lastVMID {
			continue
		}

		path := fmt.Sprintf("/nodes/%s/qemu/%d", a.Place.Node, vmid)
		problems = append(problems,
			a.execute(ctx, http.MethodPut, path+"/config?protection=0"), a.execute(ctx, http.MethodPost, path+"/status/stop"),
			a.execute(ctx, http.MethodDelete, path+"?purge=1"))
	}

	objects, err := a.ownObjects(ctx)
	problems = append(problems, err)

	for _, path := range objects {
		problems = append(problems, a.execute(ctx, http.MethodDelete, path))
	}

	return errors.Join(problems...)
}

// execute makes a call and waits for its task.
func (a *API) execute(ctx context.Context, method, path string) error {
	r, err := a.send(ctx, call{method: method, path: path})
	if err != nil {
		return err
	}

	end := "OK"
	if upid, ok := r.Data.(string); ok && strings.HasPrefix(upid, "UPID:") {
		if end, err = a.waitTask(ctx, upid); err != nil {
			return err
		}
	}

	if r.status != http.StatusOK || end != "OK" {
		return fmt.Errorf("%s %s: %d %s %s", method, path, r.status, r.reason, end)
	}

	return nil
}

func (a *API) get(ctx context.Context, path string, into any) error {
	r, err := a.send(ctx, call{method: http.MethodGet, path: path})
	if err != nil {
		return err
	}

	if r.status != http.StatusOK {
		return fmt.Errorf("unable to read %s: %d %s", path, r.status, r.reason)
	}

	return r.decode(into)
}
