package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"github.com/siderolabs/crypto/x509"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcdmember"
	"talos-proxmox/lab/machine/kubelet"
	"talos-proxmox/lab/machine/staticpods"
)

// realKubernetes runs a machine's part of real etcd and Kubernetes, as processes of labkube on the machine's address.
// It implements kubernetes.
type realKubernetes struct {
	m *machine

	// recovery is asked for; the machines' lock guards it.
	recovery *recovery

	// identity is the kubelet's client certificate since the boot, linked what it trusted when it last began, asked the
	// control plane whose API server it asks or did last; the machines' lock guards them.
	identity *x509.PEMEncodedCertificateAndKey
	linked   string
	asked    *machine

	kubelet *kubelet.Kubelet
	member  *etcdmember.Member
	static  *staticpods.StaticPods
}

func newRealKubernetes(m *machine) *realKubernetes {
	k := &realKubernetes{m: m}
	k.kubelet, k.member = kubelet.New(kubeletHost{k}, m.ms.world.Clock()), etcdmember.New(memberHost{k})
	k.static = staticpods.New(staticPodHost{k})

	return k
}

var _ kubernetes = (*realKubernetes)(nil)

// process notes that a process of the machine runs, or why it ended.
func (k *realKubernetes) process(err error) {
	if err != nil {
		k.m.say("[talos] %s", err)
	}

	k.m.changed.fireLocked(k.m.ms)
}

// host describes the machine to its parts.
func (k *realKubernetes) host() (controlplane.Host, error) {
	m := k.m

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.config == nil {
		return controlplane.Host{}, errors.New("the machine is going down")
	}

	dir, err := k.folder()
	if err != nil {
		return controlplane.Host{}, err
	}

	return controlplane.Host{
		Binary: m.ms.options.Labkube.Binary, Dir: dir, Name: m.hostname, Address: m.net.Node, Etcd: m.etcdAddress(),
		APIServerSubject: m.certified().APIServerSubject(), Config: m.config, Release: m.release,
	}, nil
}

// folder is where the machine's parts keep their files: that of its volume, and of what the volume holds since it was
// written or wiped. What earlier machines of the same volume have left is removed. The caller holds the lock.
func (k *realKubernetes) folder() (string, error) {
	m := k.m

	volume := m.disks.Volume
	if volume == "" {
		volume = fmt.Sprintf("iso-%d", m.hw.VMID)
	}

	if m.disk.Data == "" {
		m.disk.Data = uuid.NewString()
		m.save()
	}

	parent := filepath.Join(m.ms.options.Labkube.Dir, url.PathEscape(volume))

	if err := m.takeKept(parent); err != nil {
		return "", err
	}

	entries, err := os.ReadDir(parent)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("unable to read the machine's folder: %w", err)
	}

	for _, e := range entries {
		if e.Name() != m.disk.Data {
			if err := os.RemoveAll(filepath.Join(parent, e.Name())); err != nil {
				return "", fmt.Errorf("unable to remove what an earlier machine has left: %w", err)
			}
		}
	}

	dir := filepath.Join(parent, m.disk.Data)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		k.sweep()
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("unable to make the machine's folder: %w", err)
	}

	return dir, nil
}

// takeKept brings what a wipe has left into the folder of now; the caller holds the lock.
func (m *machine) takeKept(parent string) error {
	from := m.disk.Kept
	if from == nil {
		return nil
	}

	before, now := filepath.Join(parent, from.Folder), filepath.Join(parent, m.disk.Data)

	var err error
	if from.Etcd {
		err = errors.Join(os.MkdirAll(now, 0o700), os.Rename(filepath.Join(before, "etcd"), filepath.Join(now, "etcd")))
	} else {
		err = errors.Join(os.Rename(before, now), os.RemoveAll(filepath.Join(now, "etcd")))
	}

	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unable to keep what was not wiped: %w", err)
	}

	m.disk.Kept = nil
	m.save()

	return nil
}

// sweep removes what machines have left whose volumes are gone; the caller holds the lock.
func (k *realKubernetes) sweep() {
	root := k.m.ms.options.Labkube.Dir

	entries, err := os.ReadDir(root)
	if err != nil {
		return // the folder that is made next says why
	}

	for _, e := range entries {
		volume, err := url.PathUnescape(e.Name())
		if err != nil || strings.HasPrefix(volume, "iso-") {
			continue
		}

		if _, err := k.m.ms.world.ReadVolume(volume); err != nil {
			_ = os.RemoveAll(filepath.Join(root, e.Name())) // what stays is tried again with the next machine
		}
	}
}

// hasEtcdData says whether the etcd member has begun to keep data; the caller holds the lock.
func (k *realKubernetes) hasEtcdData() bool {
	dir, err := k.folder()
	if err != nil {
		return false
	}

	_, err = os.Stat(filepath.Join(dir, "etcd", "member"))

	return err == nil
}

// apiServerOf is where the API server of a control plane answers; the caller holds the lock.
func apiServerOf(m *machine) string { return "https://" + apiServerAt(m).String() }

func apiServerAt(m *machine) netip.AddrPort {
	return netip.AddrPortFrom(m.net.Node, uint16(m.config.K8sAPIServerConfig().APIPort())) //nolint:gosec // a port
}

// runServers implements kubernetes.
func (k *realKubernetes) runServers(ctx context.Context) { k.static.Run(ctx) }

// administrator is how the machine's own API server is reached with every right, as Talos reaches it; an error where
// none runs.
func (k *realKubernetes) administrator() (*rest.Config, error) {
	k.m.ms.mu.Lock()
	defer k.m.ms.mu.Unlock()

	if k.m.config == nil || !k.m.isControlPlane() {
		return nil, fmt.Errorf("no Kubernetes API runs on %s", k.m.hostname)
	}

	return controlplane.Administrator(k.m.config, apiServerOf(k.m))
}

// createObject implements kubernetes.
func (k *realKubernetes) createObject(ctx context.Context, content map[string]any) error {
	administrator, err := k.administrator()
	if err != nil {
		return err
	}

	created, err := controlplane.Create(ctx, administrator, content)
	if created != "" {
		k.m.say("[talos] created %s", created)
	}

	return err
}

// appProblem implements kubernetes: the machine's own API server tells, as Talos asks it.
func (k *realKubernetes) appProblem(ctx context.Context, app string, controlPlanes int) string {
	administrator, err := k.administrator()
	if err != nil {
		return err.Error()
	}

	client, err := clientset.NewForConfig(administrator)
	if err != nil {
		return err.Error()
	}

	return controlplane.AppProblem(ctx, client, app, controlPlanes)
}
