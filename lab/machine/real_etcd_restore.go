package machine

import (
	"path/filepath"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
)

// bootstrap implements kubernetes.
func (k *realKubernetes) bootstrap() {
	m := k.m
	m.disk.Etcd = &etcd.Data{Initial: controlplane.Initial(m.hostname, m.etcdAddress()), New: true}
	m.save()
	m.logf("[talos] etcd: bootstrapping a cluster")
	m.cluster.changed.fire()
}

// recovery is what a bootstrap asks for that recovers from a snapshot. It is in memory only: a reboot loses it.
type recovery struct {
	skipHash bool
	boot     string
}

// recovers is the recovery that was requested since the machine booted; the caller holds the machines' lock.
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

// database implements kubernetes.
func (k *realKubernetes) database() string {
	dir, err := k.folder()
	if err != nil {
		return ""
	}

	return filepath.Join(dir, "etcd", "member", "snap", "db")
}

// recoverEtcd implements kubernetes.
func (k *realKubernetes) recoverEtcd(skipHash bool) error {
	k.recovery = &recovery{skipHash, k.m.bootID}
	k.m.cluster.changed.fire()

	return nil
}
