package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"talos-proxmox/internal/backup"
	"talos-proxmox/talosops/cluster"
)

// saveSurvivors saves the etcd data of all control planes before any of them is wiped.
func (r *restorer) saveSurvivors(ctx context.Context, observed []observation) error {
	var lost []string

	for _, s := range observed {
		if _, done := r.survivors[s.Name]; done || !s.hasData {
			continue
		}

		path, err := r.saveSurvivor(ctx, s)

		switch {
		case err == nil:
			r.survivors[s.Name] = path
		case r.req.DiscardSurvivors && ctx.Err() == nil:
			r.PrintNote(ctx, s.Name, cluster.EtcdCheck, "its data is not saved, as requested: "+err.Error())
		default:
			lost = append(lost, fmt.Sprintf("  %s: %v", s.Name, err))
		}
	}

	if len(lost) == 0 {
		return nil
	}

	return fmt.Errorf("nothing was wiped: these control planes have etcd data that cannot be saved, and may be newer than "+
		"the snapshot:\n%s\nrepair that and repeat; or, to lose their data, repeat with --discard-survivors",
		strings.Join(lost, "\n"))
}

// saveSurvivor saves the data of one control plane as a snapshot of its member, which needs no majority. A member that
// was started without a majority serves no requests (etcd waits for a leader first), so its database is copied: without
// a leader nothing writes to it.
func (r *restorer) saveSurvivor(ctx context.Context, s observation) (path string, err error) {
	if r.req.Backup == nil {
		return "", errors.New("backup.recipients: there is no public key to encrypt it to: set one in the stack file")
	}

	from, note := memberSnapshot(r.Talos, s.Node, ""), ""
	if !s.memberAnswers {
		from.stream = func(ctx context.Context, to io.Writer) error { return r.Talos.Database(ctx, s.Address, to) }
		from.check, note = (*backup.Snapshot).CheckCopy, ", a copied database (--skip-hash-check restores it)"
	}

	plain, err := newUnnamedFile()
	if err != nil {
		return "", err
	}

	defer func() { _ = plain.Close() }()

	stream := from.stream
	from.stream = func(ctx context.Context, to io.Writer) error { return stream(ctx, io.MultiWriter(to, plain)) }

	_, file, refused, err := storeSnapshot(ctx, *r.req.Backup, backup.Survivor(s.Name), time.Now(), from)
	if refused != nil || err != nil {
		return "", errors.Join(refused, err)
	}

	r.PrintNote(ctx, s.Name, cluster.EtcdCheck, "its data is saved in "+file.Path+note)

	newer, err := r.readObjects(plain)
	if err != nil {
		r.PrintNote(ctx, s.Name, cluster.EtcdCheck, "volumes that were made after the snapshot are not known: "+err.Error())
	}

	maps.Copy(r.objects.volumes, newer.volumes)

	return file.Path, nil
}
