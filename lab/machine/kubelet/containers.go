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

// Exit statuses of containers that did not end by themselves.
const (
	statusKilled   = 137
	statusUnknown  = 255 // the machine went down meanwhile
	statusStartErr = 128
)

// minRestartPause is the least time between two starts of a program of the lab's.
const minRestartPause = 2 * time.Second

// localContainer is a container of a pod since its machine was switched on. The lock of Kubelet guards it.
type localContainer struct {
	// starts counts how often it was started, on earlier boots too.
	starts  int
	running bool
	// ready says that nothing keeps its program from running.
	ready   bool
	started time.Time
	// ended is how its last run has ended, last how the one before did.
	ended, last *corev1.ContainerStateTerminated
	// restartAt is when it is started again, after a pause that grows.
	restartAt time.Time
	backoff   time.Duration
	// log is of its last run, former of the one before.
	log, previousLog *container.Log
	// simulated says that it runs in name only.
	simulated bool
	process   container.Container
	// terminate asks a process of the lab's to end; nil for other containers.
	terminate func()
	stop      context.CancelFunc
	done      chan struct{}
	stdin     *io.PipeWriter
}

// failed says that the last run of a container ended badly.
func (c *localContainer) failed() bool { return c.ended != nil && c.ended.ExitCode != 0 }

// shouldStart says whether a container that does not run is to be started.
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

// container returns a pod's container, as it was left on an earlier boot where it is new on this one.
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

// isSidecar says that an init container runs as long as its pod.
func isSidecar(c corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// startContainers starts what is to run of a pod, init containers one after another, and returns what it has started. The
// caller holds the kubelet's lock.
func (r *session) startContainers(p *localPod, tools nodeEnv) (started []string) {
	start := func(c corev1.Container, policy corev1.RestartPolicy) *localContainer {
		one := p.container(c.Name)
		if one.shouldStart(policy) && !time.Now().Before(one.restartAt) {
			r.startContainer(p, c, one, policy, tools)
			started = append(started, c.Name)
		}

		return one
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

		if one := start(c, retry); one.running || one.ended == nil || one.failed() {
			return started
		}
	}

	for _, c := range p.pod.Spec.Containers {
		start(c, policy)
	}

	return started
}

// newNodeEnv are what a pod's containers are given by their node.
type nodeEnv struct {
	nvidia func(c corev1.Container) *container.NVIDIA
	// kubePrismPort is KubePrism's port, 0 where it leads nowhere; proxy says that kube-proxy leads to services, service is the
	// API's address among them.
	kubePrismPort int
	kubeProxy     bool
	apiServiceIP  string
	// binaries is the folder of the programs that the lab has of images.
	binaries string
}

// startContainer starts a container; the caller holds the kubelet's lock.
func (r *session) startContainer(p *localPod, c corev1.Container, one *localContainer, policy corev1.RestartPolicy,
	tools nodeEnv,
) {
	command := containerCommand(p.pod, c)
	ctx, stop := context.WithCancel(r.k.bootCtx)

	one.starts++
	one.running, one.ready, one.started = true, false, time.Now()
	one.last, one.ended = one.ended, nil
	one.log, one.previousLog = &container.Log{}, one.log
	one.stop, one.done = stop, make(chan struct{})

	image, _ := images.Find(tools.binaries, c.Image) // a pod without its program comes no further than its pull

	one.simulated, one.terminate = image == nil && !container.CanRun(command), nil
	one.process = container.Container{
		Hostname: p.pod.Name, Env: environment(p.pod, c, r.Node), NVIDIA: tools.nvidia(c), Sleep: r.k.clock.Sleep,
	}

	streams := container.Streams{Stdout: one.log, Stderr: one.log, TTY: c.TTY}

	ended := stop

	if c.Stdin {
		var stdin *io.PipeReader

		stdin, one.stdin = io.Pipe()
		streams.Stdin = stdin
		ended = func() {
			stop()

			_ = stdin.Close() // nothing waits for a container to read
		}
	}

	uid, spec := string(p.pod.UID), p.pod.Spec
	process, log, finished, inName := one.process, one.log, one.done, one.simulated

	r.k.m.Go(func() {
		defer ended()

		var end *corev1.ContainerStateTerminated

		switch failure := tools.findStartFailure(ctx, spec, c); {
		case failure != nil:
			_, _ = log.Write([]byte(failure.log))
			end = &corev1.ContainerStateTerminated{
				ExitCode: failure.code, Reason: failure.reason, Message: failure.message,
			}
		case image != nil:
			end = r.runProgram(ctx, p, c, one, image, log, tools)
		case isCertgen(c.Image):
			end = terminatedState(r.k.generateCertificates(ctx, p.pod, c, log), nil)
		case !inName:
			r.k.containerReady(one, uid)

			end = terminatedState(process.Run(ctx, command, streams))
		case policy == corev1.RestartPolicyAlways:
			r.k.containerReady(one, uid)

			_, _ = fmt.Fprintf(log, "the lab runs %s in name only\n", c.Image)

			<-ctx.Done() // a server ends well when it is asked to

			end = terminatedState(0, nil)
		default:
			_, _ = fmt.Fprintf(log, "the lab runs %s in name only: it has ended well\n", c.Image)
			end = terminatedState(0, nil)
		}

		r.k.containerEnded(one, log, end)
		close(finished)
		r.k.syncNow(r.k.bootCtx, uid)
	})
}

// terminatedState tells how a container has ended.
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

// containerEnded notes how a container's run has ended, and when it may start again: after growing pauses.
func (k *Kubelet) containerEnded(one *localContainer, log *container.Log, end *corev1.ContainerStateTerminated) {
	log.Close()

	k.mu.Lock()
	defer k.mu.Unlock()

	if one.backoff = min(2*one.backoff, 5*time.Minute); one.backoff == 0 && one.starts > 1 {
		one.backoff = 10 * time.Second
	}

	pause := k.clock.Real(one.backoff)
	if one.terminate != nil { // a process that ends at once is not started in a hurry, however fast the lab's clock is
		pause = max(pause, minRestartPause)
	}

	end.StartedAt, end.FinishedAt = metav1.NewTime(one.started).Rfc3339Copy(), metav1.Now().Rfc3339Copy()
	one.running, one.ready, one.ended, one.restartAt = false, false, end, time.Now().Add(pause)
}

// containerReady notes that a container's program runs.
func (k *Kubelet) containerReady(one *localContainer, uid string) {
	k.mu.Lock()
	one.ready = true
	k.mu.Unlock()

	k.syncNow(k.bootCtx, uid)
}

// syncNow looks after a pod as soon as something has happened to it.
func (k *Kubelet) syncNow(ctx context.Context, uid string) {
	k.syncMu.Lock() // first, so that a pod that is deleted meanwhile does not come back
	defer k.syncMu.Unlock()

	k.mu.Lock()
	r, one := k.session, k.pods[uid]
	k.mu.Unlock()

	if r != nil && one != nil && ctx.Err() == nil {
		r.syncPod(ctx, one.pod)
	}
}

// scheduleKill ends a pod's containers after its grace period, which another deletion may shorten.
func (r *session) scheduleKill(p *corev1.Pod, one *localPod) {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if p.DeletionGracePeriodSeconds != nil {
		grace = *p.DeletionGracePeriodSeconds
	}

	if one.kill == nil {
		one.killCtx, one.kill = context.WithCancel(r.k.bootCtx)
	} else if one.grace == grace {
		return
	}

	one.grace = grace
	time.AfterFunc(r.k.clock.Real(time.Duration(grace)*time.Second), one.kill)
}

// terminatePod ends a pod that is deleted: hooks first, then its containers, which have the pod's grace period for it. A
// shell and a program that it starts do not listen when they are asked to end, as they are a container's first process.
func (r *session) terminatePod(one *localPod) {
	p := one.pod
	ctx, cancel := one.killCtx, one.kill

	r.k.m.Go(func() {
		defer cancel()

		for _, c := range p.Spec.Containers {
			r.k.mu.Lock()
			state := one.containers[c.Name]
			r.k.mu.Unlock()

			if state != nil {
				r.k.preStop(ctx, c, state)
			}
		}

		r.k.mu.Lock()
		running := make([]*localContainer, 0, len(one.containers))

		for _, c := range one.containers {
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
		one.ended = true
		r.k.mu.Unlock()
		r.k.syncNow(r.k.bootCtx, string(p.UID))
	})
}

// preStop runs the hook of a container that is asked to end.
func (k *Kubelet) preStop(ctx context.Context, c corev1.Container, state *localContainer) {
	k.mu.Lock()
	running, process := state.running, state.process
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
