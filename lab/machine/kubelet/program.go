package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/lab/machine/container"
	"talos-proxmox/lab/machine/images"
	"talos-proxmox/lab/machine/pods"
	"talos-proxmox/lab/machine/process"
)

// Containers whose program the lab has run as its processes, with the service account of their pod, on ports of their
// node's address, in a folder of the pod.

// checkImages returns a pod's state after its images were pulled: the lab may lack a program.
func checkImages(p *corev1.Pod, state pods.State, facts Facts) pods.State {
	if !state.Running {
		return state
	}

	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if _, err := images.Find(facts.Binaries, c.Image); err != nil {
			return pods.State{
				Reason: "ErrImagePull", Message: err.Error(),
				Warning: "Failed", Details: fmt.Sprintf("Failed to pull image %q: %s", c.Image, err),
			}
		}
	}

	return state
}

// podDir returns a pod's folder on its machine.
func podDir(machine, uid string) string { return filepath.Join(machine, "pods", uid) }

// removePodDirs removes the folders of deleted pods. Failures are retried at the next boot.
func (k *Kubelet) removePodDirs(gone func(uid string) bool) {
	facts := k.m.KubeletFacts()
	if facts.Dir == "" {
		return
	}

	entries, err := os.ReadDir(podDir(facts.Dir, ""))
	if err != nil {
		return // there are none
	}

	for _, e := range entries {
		if gone(e.Name()) {
			_ = os.RemoveAll(podDir(facts.Dir, e.Name()))
		}
	}
}

// newSandbox prepares the folder and the ports of a container's process, which last as long as its pod.
func (k *Kubelet) newSandbox(p *localPod, i *images.Image) (images.Sandbox, error) {
	facts := k.m.KubeletFacts()
	if facts.Dir == "" {
		return images.Sandbox{}, errNoServer // the machine is going down
	}

	dir := podDir(facts.Dir, string(p.pod.UID))
	sandbox := images.Sandbox{Dir: dir, Kubeconfig: filepath.Join(dir, "kubeconfig"), Address: facts.Address}

	for _, folder := range sandbox.Folders() {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return sandbox, fmt.Errorf("unable to create a volume: %w", err)
		}
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	if p.ports == nil {
		p.ports = loadPorts(dir, facts.Address)
	}

	for _, port := range i.Listens() {
		if p.ports[port] == 0 {
			free, err := freePort(facts.Address, 0)
			if err != nil {
				return sandbox, err
			}

			p.ports[port] = free
		}
	}

	text, err := json.Marshal(p.ports)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, portsFile), text, 0o600)
	}

	if err != nil {
		return sandbox, fmt.Errorf("unable to save a pod's ports: %w", err)
	}

	sandbox.Ports = maps.Clone(p.ports)

	return sandbox, nil
}

// portsFile stores a pod's ports in its folder: clients know them, so they survive a reboot of the machine.
const portsFile = "ports"

// loadPorts returns the stored ports of a pod that are still free.
func loadPorts(dir string, a netip.Addr) map[int32]uint16 {
	ports := map[int32]uint16{}

	text, err := os.ReadFile(filepath.Join(dir, portsFile)) //nolint:gosec // the pod's own
	if err != nil || json.Unmarshal(text, &ports) != nil {
		return map[int32]uint16{} // a new pod
	}

	maps.DeleteFunc(ports, func(_ int32, port uint16) bool {
		_, err := freePort(a, port)

		return err != nil
	})

	return ports
}

// freePort checks that a port is free; 0 picks one.
func freePort(a netip.Addr, port uint16) (uint16, error) {
	ln, err := net.Listen("tcp", netip.AddrPortFrom(a, port).String())
	if err != nil {
		return 0, fmt.Errorf("unable to find a free port: %w", err)
	}

	defer func() { _ = ln.Close() }()

	at, err := netip.ParseAddrPort(ln.Addr().String())

	return at.Port(), err
}

// checkServiceReachable returns why a container does not reach the API server's service; nil if kube-proxy or Cilium
// routes it, or the container uses another address.
func (r *session) checkServiceReachable(c corev1.Container, node nodeEnv) error {
	if node.kubeProxy || pods.Env(c, "KUBERNETES_SERVICE_HOST") != "" {
		return nil
	}

	r.k.mu.Lock()
	defer r.k.mu.Unlock()

	for _, p := range r.k.pods {
		for _, c := range p.pod.Spec.Containers {
			if isCilium(c.Image) && p.state.Running {
				return nil
			}
		}
	}

	return fmt.Errorf("dial tcp %s: i/o timeout", net.JoinHostPort(node.apiServiceIP, "443"))
}

// runProgram runs a container's program until it exits or is killed.
func (r *session) runProgram(ctx context.Context, p *localPod, c corev1.Container, ctr *localContainer, i *images.Image,
	log *container.Log, node nodeEnv,
) *corev1.ContainerStateTerminated {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	if err := r.checkServiceReachable(c, node); err != nil {
		_, _ = fmt.Fprintf(log, "unable to reach the API server: %s\n", err)

		return terminatedState(1, nil)
	}

	var env []string

	sandbox, err := r.k.newSandbox(p, i)
	if err == nil {
		err = r.k.mountServiceAccount(ctx, p.pod, sandbox)
	}

	if err == nil {
		err = r.mountConfigMaps(ctx, p.pod, c, sandbox)
	}

	if err == nil {
		env, err = r.containerEnv(ctx, p.pod, c)
	}

	if err != nil {
		return &corev1.ContainerStateTerminated{ExitCode: statusStartErr, Reason: "StartError", Message: err.Error()}
	}

	command := slices.Concat(c.Command, c.Args)
	if len(c.Command) > 0 {
		command = command[1:] // the program's name
	}

	argv, env := i.Command(expandVariables(command, env), env, sandbox)

	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec // the lab's own binary
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = sandbox.Dir, env, log, log

	err = process.Run(ctx, cmd, func() {
		r.k.mu.Lock()
		ctr.terminate = func() { _ = cmd.Process.Signal(syscall.SIGTERM) }
		r.k.mu.Unlock()

		r.k.startProbes(ctx, p, c, ctr, sandbox)
	})

	var exit *exec.ExitError

	switch {
	case err == nil:
		return terminatedState(0, nil)
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return terminatedState(exit.ExitCode(), nil)
	case errors.As(err, &exit):
		return terminatedState(0, err)
	default:
		return &corev1.ContainerStateTerminated{ExitCode: statusStartErr, Reason: "StartError", Message: err.Error()}
	}
}

// expandVariables replaces $(NAME) with a container's variables.
func expandVariables(args, env []string) []string {
	args = slices.Clone(args)

	for i := range args {
		for _, v := range env {
			name, value, _ := strings.Cut(v, "=")
			args[i] = strings.ReplaceAll(args[i], "$("+name+")", value)
		}
	}

	return args
}
