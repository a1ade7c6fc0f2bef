package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"github.com/siderolabs/crypto/x509"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcdmember"
	"talos-proxmox/lab/machine/kubelet"
	"talos-proxmox/lab/machine/staticpods"
)

// realKubernetes runs a machine's part of real etcd and Kubernetes, as processes of labkube on the machine's address.
type realKubernetes struct {
	*machine

	// recovery is the requested recovery; the machines' lock guards it.
	recovery *recovery

	// kubeletCert is the kubelet's client certificate since the boot, kubeletTrust the authorities at its last connection,
	// lastServer the control plane of the API server that it used last. The machines' lock guards them.
	kubeletCert  *x509.PEMEncodedCertificateAndKey
	kubeletTrust string
	lastServer   *machine

	agent  *kubelet.Kubelet
	member *etcdmember.Member
	static *staticpods.StaticPods
}

func newRealKubernetes(m *machine) *realKubernetes {
	k := &realKubernetes{machine: m}
	k.agent, k.member, k.static = kubelet.New(k, m.ms.world.Clock()), etcdmember.New(k), staticpods.New(k)

	return k
}

var (
	_ kubernetes         = (*realKubernetes)(nil)
	_ kubelet.Machine    = (*realKubernetes)(nil)
	_ etcdmember.Machine = (*realKubernetes)(nil)
	_ staticpods.Machine = (*realKubernetes)(nil)
)

// ProcessChanged implements etcdmember.Machine and staticpods.Machine.
func (k *realKubernetes) ProcessChanged(err error) {
	if err != nil {
		k.Logf("[talos] %s", err)
	}

	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	k.changed.fire()
}

// Host implements kubelet.Machine, etcdmember.Machine and staticpods.Machine.
func (k *realKubernetes) Host() (controlplane.Host, error) {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	if k.config == nil {
		return controlplane.Host{}, errors.New("the machine is going down")
	}

	dir, err := k.folder()
	if err != nil {
		return controlplane.Host{}, err
	}

	return controlplane.Host{
		Binary: k.ms.options.Labkube.Binary, Dir: dir, Name: k.hostname, Address: k.net.Node, Etcd: k.EtcdAddress(),
		APIServerSubject: k.certificateMachine().APIServerSubject(), Config: k.config, Release: k.release,
	}, nil
}

// folder returns the folder with the files of the machine's programs, which belongs to its volume and to one content of
// it: a written or wiped volume gets a new folder. It removes the folders of earlier content. The caller holds the
// lock.
func (k *realKubernetes) folder() (string, error) {
	volume := k.disks.Volume
	if volume == "" {
		volume = fmt.Sprintf("iso-%d", k.hw.VMID)
	}

	if k.disk.Data == "" {
		k.disk.Data = uuid.NewString()
		k.save()
	}

	parent := filepath.Join(k.ms.options.Labkube.Dir, url.PathEscape(volume))

	if err := k.restoreKept(parent); err != nil {
		return "", err
	}

	entries, err := os.ReadDir(parent)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("unable to read the machine's folder: %w", err)
	}

	for _, e := range entries {
		if e.Name() != k.disk.Data {
			if err := os.RemoveAll(filepath.Join(parent, e.Name())); err != nil {
				return "", fmt.Errorf("unable to remove the data of an earlier machine: %w", err)
			}
		}
	}

	dir := filepath.Join(parent, k.disk.Data)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		k.removeOrphans()
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("unable to create the machine's folder: %w", err)
	}

	return dir, nil
}

// restoreKept moves the data that a partial wipe has left to the current folder; the caller holds the lock.
func (k *realKubernetes) restoreKept(parent string) error {
	from := k.disk.Kept
	if from == nil {
		return nil
	}

	previous, current := filepath.Join(parent, from.Folder), filepath.Join(parent, k.disk.Data)

	var err error
	if from.Etcd {
		err = errors.Join(
			os.MkdirAll(current, 0o700), os.Rename(filepath.Join(previous, "etcd"), filepath.Join(current, "etcd")),
		)
	} else {
		err = errors.Join(os.Rename(previous, current), os.RemoveAll(filepath.Join(current, "etcd")))
	}

	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unable to keep the data of the partition that was not wiped: %w", err)
	}

	k.disk.Kept = nil
	k.save()

	return nil
}

// removeOrphans removes the data of machines whose volumes are gone; the caller holds the lock.
func (k *realKubernetes) removeOrphans() {
	root := k.ms.options.Labkube.Dir

	entries, err := os.ReadDir(root)
	if err != nil {
		return // creating the folder reports the error
	}

	for _, e := range entries {
		volume, err := url.PathUnescape(e.Name())
		if err != nil || strings.HasPrefix(volume, "iso-") {
			continue
		}

		if _, err := k.ms.world.ReadVolume(volume); err != nil {
			_ = os.RemoveAll(filepath.Join(root, e.Name())) // tried again with the next machine
		}
	}
}

// hasEtcdData reports whether the etcd member has data; the caller holds the lock.
func (k *realKubernetes) hasEtcdData() bool {
	dir, err := k.folder()
	if err != nil {
		return false
	}

	_, err = os.Stat(filepath.Join(dir, "etcd", "member"))

	return err == nil
}
