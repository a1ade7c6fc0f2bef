// Package platform brings what a cluster's platform begins with to a cluster: Helm releases, and a few objects around
// them.
package platform

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/charts"
	"talos-proxmox/talosops/checks"
)

const (
	interval = 2 * time.Second
	reminder = 15 * time.Second // between two lines about what is waited for
)

// fieldManager is who owns the fields of what is applied. It is the name of Flux' helm-controller, so that a
// HelmRelease of the same name takes a release over without a conflict.
const fieldManager = "helm-controller"

// nothingChanged ends errors of what comes before the first change.
const nothingChanged = "nothing was changed"

// retryAdvice ends errors after which the same can be run again.
const retryAdvice = "run the same again: what was done is skipped"

// Release is a Helm release that a cluster has to have.
type Release struct {
	request.HelmRelease

	Kubeconfig string // secret
	// Endpoints are the control planes' own addresses: the first that answers is asked, and never the shared one, which
	// may be nowhere yet. Empty = the server of the kubeconfig.
	Endpoints []string
	Timeout   time.Duration // of the whole
	// Sequential says that minor versions cannot be skipped.
	Sequential bool
}

// Install brings a Helm release to a cluster, and objects that belong to it.
//
// The chart is fetched first, and its digest and the values are judged: what is refused has changed nothing. Then, in
// order:
//  1. objects that come before the release are applied;
//  2. the release is installed where there is none, and upgraded where its chart or its values are others. One that an
//     interrupted run left half made is continued: what runs is never removed for it;
//  3. it is waited for its Deployments, DaemonSets and StatefulSets;
//  4. objects that follow the release are applied, those of kinds that it registers itself included, and those of
//     earlier requests that are not wanted any more are removed.
//
// A release that a HelmRelease of Flux has is left alone, and so are objects that Flux has from Git: a line says so.
// What comes before and after the release is applied whoever has it.
//
// Definitions of custom resources are applied so that pods of the version that runs bear them: while that is an older
// minor they serve each version that they have. Where minors cannot be skipped (sequential) a step over one is refused.
//
// Where the Kubernetes API does not answer for a while it is asked again, until the timeout.
func Install(ctx context.Context, release Release, progress io.Writer) error {
	r, err := newReleaser(release, progress)
	if err != nil {
		return err
	}

	kube.ManagedFieldsManager = fieldManager

	return r.run(ctx)
}

// releaser brings a release to a cluster.
type releaser struct {
	req     Release
	cluster *cluster
	before  []*unstructured.Unstructured
	after   []*unstructured.Unstructured
	chart   *chart.Chart
	values  map[string]any

	mu       sync.Mutex
	progress io.Writer
	last     string    // line
	lastAt   time.Time // when it was said
}

func newReleaser(req Release, progress io.Writer) (*releaser, error) {
	r := &releaser{req: req, progress: progress}

	var err error
	if r.values, err = loader.LoadValues(bytes.NewReader(req.Values)); err != nil {
		return nil, errors.New("values: they are not a map") // the parser quotes them
	}

	var beforeErr, afterErr error

	r.before, beforeErr = parseObjects("before", req.Before)
	r.after, afterErr = parseObjects("after", req.After)
	r.cluster, err = newCluster(req.Kubeconfig, req.Endpoints)

	return r, errors.Join(beforeErr, afterErr, err)
}

// run does the whole within the timeout.
func (r *releaser) run(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, r.req.Timeout)
	defer cancel()

	return r.explain(ctx, r.reconcileAll(limited))
}

// reconcileAll does it in order: what comes before the release, the release unless Flux has it, and what follows.
func (r *releaser) reconcileAll(ctx context.Context) error {
	owner, err := retryValue(ctx, r, func(ctx context.Context) (string, error) { return r.fluxOwner(ctx) })
	if err != nil {
		return err
	}

	if owner == "" {
		if err := r.fetch(ctx); err != nil {
			return err
		}
	}

	definitions, err := r.applyBefore(ctx)
	if err != nil {
		return err
	}

	if owner == "" {
		err = r.reconcileRelease(ctx, definitions)
	} else {
		r.printf("release %s/%s is %s's: it is left alone, and what the stack says of its chart and values is not applied",
			r.req.Namespace, r.req.Name, owner)
	}

	if err != nil {
		return err
	}

	return r.applyAfter(ctx)
}

// fetcher is patient: `up` waits for what it downloads.
var fetcher = charts.Fetcher{Timeout: 2 * time.Minute, Attempts: 3} //nolint:gochecknoglobals // a constant

// fetch gets the chart and judges the values. What it refuses has changed nothing.
func (r *releaser) fetch(ctx context.Context) error {
	var (
		digest string
		err    error
	)

	if r.chart, digest, err = fetcher.Chart(ctx, r.req.Chart, r.req.Version, r.req.Digest); err != nil {
		return fmt.Errorf("%w; %s", err, nothingChanged)
	}

	if r.req.Digest == "" {
		r.printf("the chart %s %s has the digest %s: state it, and no other is taken for it", r.req.Chart, r.req.Version, digest)
	}

	if unknown := charts.UnknownValues(r.chart, r.values); len(unknown) > 0 {
		return fmt.Errorf("the chart %s %s does not have these values, and would pass over them; %s:\n  %s",
			r.chart.Name(), r.chart.Metadata.Version, nothingChanged, strings.Join(unknown, "\n  "))
	}

	return nil
}

// applyBefore applies what comes before the release, whoever has it, and returns the objects of files among that.
func (r *releaser) applyBefore(ctx context.Context) ([]*unstructured.Unstructured, error) {
	running, err := retryValue(ctx, r, r.runningVersion)
	if err != nil {
		return nil, err
	}

	if err := r.checkVersionStep(running); err != nil {
		return nil, err
	}

	definitions, err := r.readManifests(ctx)
	if err != nil {
		return nil, err
	}

	if err := retryEach(ctx, r, r.before, r.apply); err != nil {
		return nil, err
	}

	return definitions, r.applyDefinitions(ctx, definitions, running)
}

// reconcileRelease brings the release itself, and then definitions as they are: no pods of an older version are left.
func (r *releaser) reconcileRelease(ctx context.Context, definitions []*unstructured.Unstructured) error {
	if err := r.retry(ctx, r.installOrUpgrade); err != nil {
		return err
	}

	if err := r.awaitRollout(ctx); err != nil {
		return err
	}

	return r.applyDefinitions(ctx, definitions, r.req.Version)
}

// applyAfter applies the objects that follow the release, which may be of kinds that its pods register.
func (r *releaser) applyAfter(ctx context.Context) error {
	if err := retryEach(ctx, r, r.after, r.apply); err != nil {
		return err
	}

	return retryEach(ctx, r, r.req.Absent, r.remove)
}

func retryEach[T any](ctx context.Context, r *releaser, list []T, do func(context.Context, T) error) error {
	for _, one := range list {
		if err := r.retry(ctx, func(ctx context.Context) error { return do(ctx, one) }); err != nil {
			return err
		}
	}

	return nil
}

// explain is the error in words that say what to do.
func (r *releaser) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %w: %s", cmp.Or(context.Cause(ctx), err), retryAdvice)
	case strings.HasSuffix(err.Error(), retryAdvice) || strings.Contains(err.Error(), nothingChanged):
		return err
	default:
		return fmt.Errorf("release %s/%s: %w: repair what it names, then %s", r.req.Namespace, r.req.Name, err, retryAdvice)
	}
}

// retry does something again while the Kubernetes API does not answer, or does not know a kind yet.
func (r *releaser) retry(ctx context.Context, do func(context.Context) error) error {
	for {
		err := do(ctx)
		if err == nil || !isTransient(err) {
			return err
		}

		r.printf("waits: %v", err)

		switch {
		case checks.Pause(ctx, interval) == nil:
		case matchesAny(err, connectionErrors()):
			return fmt.Errorf("the Kubernetes API has not answered for %s: %w", r.req.Timeout, err)
		default:
			return fmt.Errorf("%w (for %s)", err, r.req.Timeout)
		}
	}
}

func retryValue[T any](ctx context.Context, r *releaser, get func(context.Context) (T, error)) (value T, err error) {
	err = r.retry(ctx, func(ctx context.Context) error {
		value, err = get(ctx)

		return err
	})

	return value, err
}

// isTransient says whether an error is one of an API that restarts, or that does not know a kind yet.
func isTransient(err error) bool {
	return matchesAny(err, append(connectionErrors(), meta.IsNoMatchError, apierrors.IsServerTimeout, apierrors.IsServiceUnavailable,
		apierrors.IsTooManyRequests, apierrors.IsTimeout, apierrors.IsInternalError, apierrors.IsConflict))
}

// connectionErrors are the errors of an API that is not there.
func connectionErrors() []func(error) bool {
	return []func(error) bool{
		utilnet.IsConnectionRefused, utilnet.IsConnectionReset, utilnet.IsProbableEOF, utilnet.IsTimeout,
		utilnet.IsHTTP2ConnectionLost,
	}
}

// matchesAny says whether an error, or one that it joins, is of some kind.
func matchesAny(err error, kinds []func(error) bool) bool {
	for _, is := range kinds {
		if is(err) {
			return true
		}
	}

	var wrapped interface{ Unwrap() []error }
	if errors.As(err, &wrapped) {
		return slices.ContainsFunc(wrapped.Unwrap(), func(err error) bool { return matchesAny(err, kinds) })
	}

	return false
}

// printf writes a line of progress, unless it is the one before it again.
func (r *releaser) printf(format string, values ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()

	line := fmt.Sprintf(format, values...)
	if line == r.last && time.Since(r.lastAt) < reminder {
		return
	}

	r.last, r.lastAt = line, time.Now()
	// Continue even if no one reads the progress.
	_, _ = fmt.Fprintln(r.progress, line)
}
