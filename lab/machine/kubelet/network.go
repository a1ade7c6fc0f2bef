package kubelet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/lab/machine/pods"
)

// cniMarkerFile is a file in the machine's folder that marks the CNI as installed: like the CNI's configuration on a
// node, it survives reboots.
const cniMarkerFile = "cni"

// networkReady reports whether a CNI has been installed on the node.
func (k *Kubelet) networkReady() bool {
	k.mu.Lock()
	defer k.mu.Unlock()

	return k.cniInstalled
}

// LoadCNI restores whether an earlier boot installed a CNI.
func (k *Kubelet) LoadCNI() {
	host, err := k.m.Host()
	if err != nil {
		return // the machine is going down
	}

	_, err = os.Stat(filepath.Join(host.Dir, cniMarkerFile))

	k.mu.Lock()
	defer k.mu.Unlock()

	k.cniInstalled = err == nil
}

// installCNI marks the network as ready once a pod that installs a CNI has all its containers running.
func (k *Kubelet) installCNI(p *localPod) {
	k.mu.Lock()

	started := !slices.ContainsFunc(p.pod.Spec.Containers, func(c corev1.Container) bool {
		return !p.container(c.Name).ready
	})
	if k.cniInstalled || !started || !installsCNI(p.pod.Spec) {
		k.mu.Unlock()

		return
	}

	k.cniInstalled = true
	k.mu.Unlock()

	host, err := k.m.Host()
	if err == nil {
		err = os.WriteFile(filepath.Join(host.Dir, cniMarkerFile), []byte(p.pod.Name+"\n"), 0o600)
	}

	if err != nil {
		k.m.Logf("[talos] cni: %s", err)
	}
}

// installsCNI reports whether a pod writes the configuration of a CNI.
func installsCNI(spec corev1.PodSpec) bool {
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, mount := range c.VolumeMounts {
			if slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
				return v.Name == mount.Name && !mount.ReadOnly && v.HostPath != nil &&
					path.Clean(v.HostPath.Path) == pods.CNIConfigurations
			}) {
				return true
			}
		}
	}

	return false
}

// startFailure is how a container that the lab only simulates would fail on Talos.
type startFailure struct {
	code                 int32
	reason, message, log string
}

// capabilityDenied is containerd's message for a capability that Talos does not grant.
const capabilityDenied = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc " +
	"create failed: unable to start container process: error during container init: unable to apply caps: operation not " +
	"permitted"

// findStartFailure returns why a container cannot run on this node; nil if it can. The failures of Cilium are those
// that its users saw on Talos (siderolabs/talos#5948 and #11352, cilium/cilium#28823).
func (t nodeEnv) findStartFailure(ctx context.Context, spec corev1.PodSpec, c corev1.Container) *startFailure {
	if s := c.SecurityContext; s != nil && s.Capabilities != nil && !pods.IsTrue(s.Privileged) {
		for _, name := range s.Capabilities.Add {
			if name == "SYS_MODULE" || name == "SYS_BOOT" {
				return &startFailure{code: statusStartErr, reason: "StartError", message: capabilityDenied}
			}
		}
	}

	operator := isCiliumOperator(c.Image)
	if !operator && !isCilium(c.Image) {
		return nil
	}

	command := slices.Concat(c.Command, c.Args)

	switch {
	case c.Name == "mount-cgroup":
		return &startFailure{
			code: 126, reason: "Error", log: "nsenter: failed to execute /opt/cni/bin/cilium-mount: Permission denied\n",
		}
	case operator, slices.Contains(command, "build-config"), slices.Contains(command, "cilium-agent"):
	default:
		return nil
	}

	if err := t.checkAPIReachable(ctx, pods.Env(c, "KUBERNETES_SERVICE_HOST"), pods.Env(c, "KUBERNETES_SERVICE_PORT")); err != nil {
		return &startFailure{code: 1, reason: "Error", log: fmt.Sprintf(
			"level=error msg=\"Unable to contact k8s api-server\" error=%q\n", err)}
	}

	if operator || slices.Contains(command, "build-config") {
		return nil
	}

	for _, v := range spec.Volumes {
		if v.Name == "cilium-cgroup" && v.HostPath != nil && path.Clean(v.HostPath.Path) != "/sys/fs/cgroup" {
			return &startFailure{code: 1, reason: "Error", log: fmt.Sprintf(
				"level=fatal msg=\"unable to attach programs of socket load balancing\" error=\"%s is no cgroup2 file system\"\n",
				v.HostPath.Path)}
		}
	}

	return nil
}

// isCilium reports whether an image is that of Cilium's agent.
func isCilium(image string) bool {
	return strings.Contains(image, "cilium/cilium:") || strings.Contains(image, "cilium/cilium@")
}

// isCiliumOperator reports whether an image is that of Cilium's operator.
func isCiliumOperator(image string) bool { return strings.Contains(image, "cilium/operator-") }

// checkAPIReachable returns why a pod in its host's network does not reach the Kubernetes API before a CNI runs: it
// needs KubePrism, an address of the lab's network, or kube-proxy for the service's address.
func (t nodeEnv) checkAPIReachable(ctx context.Context, host, port string) error {
	getError := func(address, problem string) error {
		//nolint:staticcheck // as Go words it
		return fmt.Errorf("Get \"https://%s/api/v1/namespaces/kube-system\": dial tcp %s: %s", address, address, problem)
	}

	if host == "" {
		if t.kubeProxy {
			return nil
		}

		return getError(net.JoinHostPort(t.apiServiceIP, "443"), "i/o timeout")
	}

	address := net.JoinHostPort(host, port)

	if host == "localhost" || host == "127.0.0.1" {
		if t.kubePrismPort == 0 || port != strconv.Itoa(t.kubePrismPort) {
			return getError(net.JoinHostPort("127.0.0.1", port), "connect: connection refused")
		}

		return nil
	}

	if ip, err := netip.ParseAddr(host); err == nil && !ip.IsLoopback() {
		return getError(address, "i/o timeout")
	} else if err != nil {
		return getError(address, "lookup "+host+": no such host") // the lab has no DNS
	}

	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return getError(address, "connect: connection refused")
	}

	return conn.Close()
}
