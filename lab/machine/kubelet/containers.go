package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/lab/machine/container"
	"talos-proxmox/lab/machine/images"
)

// Exit statuses of containers that did not exit by themselves.
const (
	statusKilled   = 137
	statusUnknown  = 255 // the machine went down
	statusStartErr = 128
)

// minRestartPause is the minimum time between two starts of a program of the lab.
const minRestartPause = 2 * time.Second

// localContainer is a container of a pod since its machine was switched on. The kubelet's lock guards it.
type localContainer struct {
	// starts counts the starts, including those on earlier boots.
	starts  int
	running bool
	// ready: its program runs and is healthy.
	ready   bool
	started time.Time
	// ended is how its last run ended, last how the previous one did.
	ended, last *corev1.ContainerStateTerminated
	// restartAt is when it may start again, backoff the delay before that, which grows.
	restartAt time.Time
	backoff   time.Duration
	// log is that of its last run, previousLog of the one before.
	log, previousLog *container.Log
	// simulated: no program runs for it.
	simulated bool
	process   container.Container
	// terminate sends SIGTERM to a program of the lab; nil for other containers.
	terminate func()
	stop      context.CancelFunc
	done      chan struct{}
	stdin     *io.PipeWriter
}

// failed reports whether the last run of a container failed.
func (c *localContainer) failed() bool { return c.ended != nil && c.ended.ExitCode != 0 }

// shouldStart reports whether a container is to be started.
func (c *localContainer) shouldStart(policy corev1.RestartPolicy) bool {
	switch {
	case c.running:
		return false
	case c.starts == 0 || policy == corev1.RestartPolicyAlways:
		return true
	default:
		return policy == corev1.RestartPolicyOnFailure && c.failed()
	}
}

// container returns the state of a pod's container, which on a new boot begins with that of its status.
func (p *localPod) container(name string) *localContainer {
	if c := p.containers[name]; c != nil {
		return c
	}

	c := &localContainer{}

	for _, s := range p.pod.Status.ContainerStatuses {
		switch {
		case s.Name != name:
		case s.State.Terminated != nil:
			c.starts, c.ended = int(s.RestartCount)+1, s.State.Terminated
		case s.State.Running != nil || s.RestartCount > 0:
			c.starts, c.ended = int(s.RestartCount)+1, &corev1.ContainerStateTerminated{
				ExitCode: statusUnknown, Reason: "Unknown", FinishedAt: metav1.Now().Rfc3339Copy(),
			}
		}
	}

	if p.containers == nil {
		p.containers = map[string]*localContainer{}
	}

	p.containers[name] = c

	return c
}

// isSidecar reports whether an init container runs as long as its pod.
func isSidecar(c corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// startContainers starts the containers that are due, init containers one after another, and returns their names. The
// caller holds the kubelet's lock.
func (r *session) startContainers(p *localPod, node nodeEnv) (started []string) {
	start := func(c corev1.Container, policy corev1.RestartPolicy) *localContainer {
		ctr := p.container(c.Name)
		if ctr.shouldStart(policy) && !time.Now().Before(ctr.restartAt) {
			r.startContainer(p, c, ctr, policy, node)
			started = append(started, c.Name)
		}

		return ctr
	}

	policy := p.pod.Spec.RestartPolicy

	for _, c := range p.pod.Spec.InitContainers {
		if isSidecar(c) {
			start(c, corev1.RestartPolicyAlways)

			continue
		}

		retry := corev1.RestartPolicyOnFailure
		if policy == corev1.RestartPolicyNever {
			retry = policy
		}

		if ctr := start(c, retry); ctr.running || ctr.ended == nil || ctr.failed() {
			return started
		}
	}

	for _, c := range p.pod.Spec.Containers {
		start(c, policy)
	}

	return started
}

// nodeEnv is what a node provides to a pod's containers.
type nodeEnv struct {
	nvidia func(c corev1.Container) *container.NVIDIA
	// kubePrismPort is 0 if KubePrism does not work. kubeProxy reports whether kube-proxy routes services, apiServiceIP is
	// the address of the API server's service.
	kubePrismPort int
	kubeProxy     bool
	apiServiceIP  string
	// binaries is the folder with the lab's programs of images.
	binaries string
}

// startContainer starts a container; the caller holds the kubelet's lock.
func (r *session) startContainer(p *localPod, c corev1.Container, ctr *localContainer, policy corev1.RestartPolicy,
	node nodeEnv,
) {
	command := containerCommand(p.pod, c)
	ctx, stop := context.WithCancel(r.k.bootCtx)

	ctr.starts++
	ctr.running, ctr.ready, ctr.started = true, false, time.Now()
	ctr.last, ctr.ended = ctr.ended, nil
	ctr.log, ctr.previousLog = &container.Log{}, ctr.log
	ctr.stop, ctr.done = stop, make(chan struct{})

	image, _ := images.Find(node.binaries, c.Image) // checkImages has reported an error

	ctr.simulated, ctr.terminate = image == nil && !container.CanRun(command), nil
	ctr.process = container.Container{
		Hostname: p.pod.Name, Env: environment(p.pod, c, r.Node), NVIDIA: node.nvidia(c), Sleep: r.k.clock.Sleep,
	}

	streams := container.Streams{Stdout: ctr.log, Stderr: ctr.log, TTY: c.TTY}

	cleanup := stop

	if c.Stdin {
		var stdin *io.PipeReader

		stdin, ctr.stdin = io.Pipe()
		streams.Stdin = stdin
		cleanup = func() {
			stop()

			_ = stdin.Close() // unblocks writers
		}
	}

	uid, spec := string(p.pod.UID), p.pod.Spec
	process, log, done, simulated := ctr.process, ctr.log, ctr.done, ctr.simulated

	r.k.m.Go(func() {
		defer cleanup()

		var end *corev1.ContainerStateTerminated

		switch failure := node.findStartFailure(ctx, spec, c); {
		case failure != nil:
			_, _ = log.Write([]byte(failure.log))
			end = &corev1.ContainerStateTerminated{
				ExitCode: failure.code, Reason: failure.reason, Message: failure.message,
			}
		case image != nil:
			end = r.runProgram(ctx, p, c, ctr, image, log, node)
		case isCertgen(c.Image):
			end = terminatedState(r.k.generateCertificates(ctx, p.pod, c, log), nil)
		case !simulated:
			r.k.containerReady(ctr, uid)

			end = terminatedState(process.Run(ctx, command, streams))
		case policy == corev1.RestartPolicyAlways:
			r.k.containerReady(ctr, uid)

			_, _ = fmt.Fprintf(log, "the lab does not run %s: the container only counts as running\n", c.Image)

			<-ctx.Done() // a server exits with status 0 on SIGTERM

			end = terminatedState(0, nil)
		default:
			_, _ = fmt.Fprintf(log, "the lab does not run %s: the container counts as completed\n", c.Image)
			end = terminatedState(0, nil)
		}

		r.k.containerEnded(ctr, log, end)
		close(done)
		r.k.syncNow(r.k.bootCtx, uid)
	})
}

// terminatedState returns the terminated state for an exit status or an error.
func terminatedState(status int, err error) *corev1.ContainerStateTerminated {
	end := &corev1.ContainerStateTerminated{ExitCode: int32(status)} //nolint:gosec // an exit status

	switch {
	case errors.Is(err, container.ErrNotFound):
		end.ExitCode, end.Reason = statusStartErr, "StartError"
		end.Message = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create " +
			"failed: unable to start container process: error during container init: " + err.Error()
	case err != nil:
		end.ExitCode, end.Reason = statusKilled, "Error"
	case status == 0:
		end.Reason = "Completed"
	default:
		end.Reason = "Error"
	}

	return end
}

// containerEnded records how a container ended, and when it may start again: after growing delays.
func (k *Kubelet) containerEnded(ctr *localContainer, log *container.Log, end *corev1.ContainerStateTerminated) {
	log.Close()

	k.mu.Lock()
	defer k.mu.Unlock()

	if ctr.backoff = min(2*ctr.backoff, 5*time.Minute); ctr.backoff == 0 && ctr.starts > 1 {
		ctr.backoff = 10 * time.Second
	}

	pause := k.clock.Real(ctr.backoff)
	if ctr.terminate != nil { // bounds the restarts of real processes, however fast the lab's clock is
		pause = max(pause, minRestartPause)
	}

	end.StartedAt, end.FinishedAt = metav1.NewTime(ctr.started).Rfc3339Copy(), metav1.Now().Rfc3339Copy()
	ctr.running, ctr.ready, ctr.ended, ctr.restartAt = false, false, end, time.Now().Add(pause)
}

// containerReady records that a container's program runs.
func (k *Kubelet) containerReady(ctr *localContainer, uid string) {
	k.mu.Lock()
	ctr.ready = true
	k.mu.Unlock()

	k.syncNow(k.bootCtx, uid)
}

// syncNow syncs a pod as soon as something has happened to it.
func (k *Kubelet) syncNow(ctx context.Context, uid string) {
	k.syncMu.Lock() // before mu, so that a pod deleted meanwhile does not come back
	defer k.syncMu.Unlock()

	k.mu.Lock()
	r, local := k.session, k.pods[uid]
	k.mu.Unlock()

	if r != nil && local != nil && ctx.Err() == nil {
		r.syncPod(ctx, local.pod)
	}
}

// scheduleKill kills a pod's containers after its grace period, which another deletion may shorten.
func (r *session) scheduleKill(p *corev1.Pod, local *localPod) {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if p.DeletionGracePeriodSeconds != nil {
		grace = *p.DeletionGracePeriodSeconds
	}

	if local.kill == nil {
		local.killCtx, local.kill = context.WithCancel(r.k.bootCtx)
	} else if local.grace == grace {
		return
	}

	local.grace = grace
	time.AfterFunc(r.k.clock.Real(time.Duration(grace)*time.Second), local.kill)
}

// terminatePod terminates a deleted pod: it runs preStop hooks, then ends the containers within the pod's grace period.
// A shell and its programs ignore SIGTERM, since they run as the container's first process.
func (r *session) terminatePod(local *localPod) {
	p := local.pod
	ctx, cancel := local.killCtx, local.kill

	r.k.m.Go(func() {
		defer cancel()

		for _, c := range p.Spec.Containers {
			r.k.mu.Lock()
			ctr := local.containers[c.Name]
			r.k.mu.Unlock()

			if ctr != nil {
				r.k.preStop(ctx, c, ctr)
			}
		}

		r.k.mu.Lock()
		running := make([]*localContainer, 0, len(local.containers))

		for _, c := range local.containers {
			if c.running {
				running = append(running, c)
			}
		}
		r.k.mu.Unlock()

		for _, c := range running {
			r.k.mu.Lock()
			terminate := c.terminate
			r.k.mu.Unlock()

			if terminate != nil {
				terminate()
			}

			if !c.simulated {
				select {
				case <-ctx.Done():
				case <-c.done:
				}
			}

			c.stop()
			<-c.done
		}

		r.k.mu.Lock()
		local.ended = true
		r.k.mu.Unlock()
		r.k.syncNow(r.k.bootCtx, string(p.UID))
	})
}

// preStop runs the hook of a container that is being terminated.
func (k *Kubelet) preStop(ctx context.Context, c corev1.Container, ctr *localContainer) {
	k.mu.Lock()
	running, process := ctr.running, ctr.process
	k.mu.Unlock()

	if !running || c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
		return
	}

	switch hook := c.Lifecycle.PreStop; {
	case hook.Sleep != nil:
		_ = process.Sleep(ctx, time.Duration(hook.Sleep.Seconds)*time.Second) // cut short by the grace period
	case hook.Exec != nil && container.CanRun(hook.Exec.Command):
		_, _ = process.Run(ctx, hook.Exec.Command, container.Streams{Stdout: io.Discard, Stderr: io.Discard}) // as above
	}
}
