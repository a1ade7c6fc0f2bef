package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/images"
)

// Defaults of probes, and the minimum interval between two probes, whatever the lab's speed.
const (
	probePeriod      = 10
	probeTimeout     = 1
	probeFailures    = 3
	minProbeInterval = 500 * time.Millisecond
)

// startProbes probes a process as its container's probes specify until the context ends: readiness sets whether it is
// ready, failed liveness restarts it. Without a readiness probe it is ready at once.
func (k *Kubelet) startProbes(
	ctx context.Context, p *localPod, c corev1.Container, ctr *localContainer, sandbox images.Sandbox,
) {
	uid := string(p.pod.UID)

	if hasHTTPProbe(c.ReadinessProbe) {
		k.m.Go(func() {
			k.runProbe(ctx, c, *c.ReadinessProbe, k.clock.Real, sandbox, func(ok bool) {
				k.mu.Lock()

				changed := ctr.running && ctr.ready != ok && ctx.Err() == nil
				if changed {
					ctr.ready = ok
				}
				k.mu.Unlock()

				if changed {
					k.syncNow(k.bootCtx, uid)
				}
			})
		})
	} else {
		k.m.Go(func() { k.containerReady(ctr, uid) })
	}

	if hasHTTPProbe(c.LivenessProbe) {
		failures := 0
		// A fast lab clock does not make real programs start faster, and nothing waits for this probe.
		patient := func(d time.Duration) time.Duration { return d }

		k.m.Go(func() {
			k.runProbe(ctx, c, *c.LivenessProbe, patient, sandbox, func(ok bool) {
				if failures++; ok {
					failures = 0
				}

				if failures >= int(cmp.Or(c.LivenessProbe.FailureThreshold, probeFailures)) {
					k.mu.Lock()
					defer k.mu.Unlock()

					ctr.terminate()
				}
			})
		})
	}
}

func hasHTTPProbe(p *corev1.Probe) bool { return p != nil && p.HTTPGet != nil }

// runProbe runs a probe repeatedly, at the pace of a clock.
func (k *Kubelet) runProbe(ctx context.Context, c corev1.Container, p corev1.Probe,
	clock func(time.Duration) time.Duration, sandbox images.Sandbox, report func(bool),
) {
	seconds := func(n int32) time.Duration { return time.Duration(n) * time.Second }

	port := p.HTTPGet.Port.IntVal

	for _, named := range c.Ports {
		if named.Name == p.HTTPGet.Port.StrVal {
			port = named.ContainerPort
		}
	}

	client := http.Client{Timeout: seconds(cmp.Or(p.TimeoutSeconds, probeTimeout))}
	url := fmt.Sprintf("http://%s%s", sandbox.HostPort(port), p.HTTPGet.Path)

	controlplane.Sleep(ctx, clock(seconds(p.InitialDelaySeconds)))

	for ctx.Err() == nil {
		report(isHealthy(ctx, client, url))
		controlplane.Sleep(ctx, max(clock(seconds(cmp.Or(p.PeriodSeconds, probePeriod))), minProbeInterval))
	}
}

// isHealthy reports whether a server answers with a success or a redirect.
func isHealthy(ctx context.Context, client http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}

	response, err := client.Do(request)
	if err != nil {
		return false
	}

	_, _ = io.Copy(io.Discard, response.Body) // allows to reuse the connection

	return response.Body.Close() == nil && response.StatusCode >= http.StatusOK &&
		response.StatusCode < http.StatusBadRequest
}
