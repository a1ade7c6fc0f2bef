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

// Containers whose program the lab has run as its processes: with the service account of their pod, at ports of their
// node's address, in a folder of the pod.

// checkImages is a pod's state once its images have been looked for: the lab may not have one's program.
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

// podDir is a pod's folder on its machine.
func podDir(machine, uid string) string { return filepath.Join(machine, "pods", uid) }

// removePodDirs removes the folders of pods that are gone; what stays is tried again with the next boot.
func (k *Kubelet) removePodDirs(gone func(uid string) bool) {
	facts := k.m.KubeletFacts()
	if facts.Dir == "" {
		return
	}

	entries, err := os.ReadDir(podDir(facts.Dir, ""))
	if err != nil {
		return // it has none
	}

	for _, e := range entries {
		if gone(e.Name()) {
			_ = os.RemoveAll(podDir(facts.Dir, e.Name()))
		}
	}
}

// newSandbox gives a container's process its folder and its ports, which last as long as the pod.
func (k *Kubelet) sandbox(p *localPod, i *images.Image) (images.Sandbox, error) {
	facts := k.m.KubeletFacts()
	if facts.Dir == "" {
		return images.Sandbox{}, errNoServer // the machine goes down
	}

	dir := podDir(facts.Dir, string(p.pod.UID))
	sandbox := images.Sandbox{Dir: dir, Kubeconfig: filepath.Join(dir, "kubeconfig"), Address: facts.Address}

	for _, folder := range sandbox.Folders() {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return sandbox, fmt.Errorf("unable to make a volume: %w", err)
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
		return sandbox, fmt.Errorf("unable to note a pod's ports: %w", err)
	}

	sandbox.Ports = maps.Clone(p.ports)

	return sandbox, nil
}

// portsFile is where a pod's folder notes its ports: they are the same after its machine has been off, as others know
// them.
const portsFile = "ports"

// loadPorts are those that a pod had, as far as nothing else has taken them.
func loadPorts(dir string, a netip.Addr) map[int32]uint16 {
	ports := map[int32]uint16{}

	text, err := os.ReadFile(filepath.Join(dir, portsFile)) //nolint:gosec // the pod's own
	if err != nil || json.Unmarshal(text, &ports) != nil {
		return map[int32]uint16{} // it is new
	}

	maps.DeleteFunc(ports, func(_ int32, port uint16) bool {
		_, err := freePort(a, port)

		return err != nil
	})

	return ports
}

// freePort is one that nothing listens at: this one, or any where it is 0.
func freePort(a netip.Addr, port uint16) (uint16, error) {
	ln, err := net.Listen("tcp", netip.AddrPortFrom(a, port).String())
	if err != nil {
		return 0, fmt.Errorf("unable to find a free port: %w", err)
	}

	defer func() { _ = ln.Close() }()

	at, err := netip.ParseAddrPort(ln.Addr().String())

	return at.Port(), err
}

// checkServiceReachable is why a container does not reach the API server's service; nil where kube-proxy or Cilium leads
// there, or where it is told another address.
func (r *session) checkServiceReachable(c corev1.Container, tools nodeEnv) error {
	if tools.kubeProxy || pods.Env(c, "KUBERNETES_SERVICE_HOST") != "" {
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

	return fmt.Errorf("dial tcp %s: i/o timeout", net.JoinHostPort(tools.apiServiceIP, "443"))
}

// runProgram runs a container's program until it ends or is killed.
func (r *session) runProgram(ctx context.Context, p *localPod, c corev1.Container, one *localContainer, i *images.Image,
	log *container.Log, tools nodeEnv,
) *corev1.ContainerStateTerminated {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	if err := r.checkServiceReachable(c, tools); err != nil {
		_, _ = fmt.Fprintf(log, "unable to reach the API server: %s\n", err)

		return terminatedState(1, nil)
	}

	var env []string

	sandbox, err := r.k.sandbox(p, i)
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
		one.terminate = func() { _ = cmd.Process.Signal(syscall.SIGTERM) }
		r.k.mu.Unlock()

		r.k.startProbes(ctx, p, c, one, sandbox)
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

// expandVariables puts a container's variables in the place of $(NAME).
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
