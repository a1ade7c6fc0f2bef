package machine

import (
	"context"
	"fmt"

	"talos-proxmox/lab/machine/controlplane"
)

// bootstrap implements kubernetes.
func (k *realKubernetes) bootstrap() {
	m := k.m
	m.disk.Etcd = &etcdData{Initial: controlplane.Initial(m.hostname, m.etcdAddress()), New: true}
	m.save()
	m.logf("[talos] etcd: bootstrapping a cluster")
	m.cluster.changed.fire()
}

// recovery is what a bootstrap asks for that recovers from a snapshot. It is in memory only: a reboot loses it.
type recovery struct {
	skipHash bool
	boot     string
}

// recovers is the recovery that somebody has asked for since the machine booted; the caller holds the machines' lock.
func (k *realKubernetes) recovers() *recovery {
	if k.recovery == nil || k.recovery.boot != k.m.bootID {
		return nil
	}

	return k.recovery
}

// awaitSnapshot implements kubernetes.
func (k *realKubernetes) awaitSnapshot() (string, error) {
	host, err := k.host()

	return host.SnapshotFile(), err
}

// recoverEtcd implements kubernetes.
func (k *realKubernetes) recoverEtcd(skipHash bool) error {
	k.recovery = &recovery{skipHash, k.m.bootID}
	k.m.cluster.changed.fire()

	return nil
}

// restore makes the member's data of the uploaded snapshot.
func (k *realKubernetes) restore(ctx context.Context) error {
	m := k.m

	m.ms.mu.Lock()
	asked := k.recovers()
	k.recovery = nil
	m.ms.mu.Unlock()

	if asked == nil {
		return nil
	}

	host, err := k.host()
	if err == nil {
		err = host.RestoreEtcd(ctx, asked.skipHash)
	}

	if err != nil {
		return fmt.Errorf("Failed to run pre stage: %w", err) //nolint:staticcheck // Talos' own words
	}

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	// The recovered cluster has the first one's id and older data than is known of that.
	for id, e := range m.cluster.etcds {
		if len(e.running) == 0 {
			delete(m.cluster.etcds, id)
		}
	}

	m.logf("[talos] etcd: recovered from the snapshot")
	k.bootstrap()

	return nil
}
