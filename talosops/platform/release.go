// Package platform installs the base of a cluster's platform: Helm releases, and objects that belong to them.
package platform

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
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
	reminder = 15 * time.Second // between equal lines of progress
)

// fieldManager is the field manager of applied objects. It is the name of Flux' helm-controller, so that a
// HelmRelease of the same name can take a release over without a conflict.
const fieldManager = "helm-controller"

// nothingChanged ends errors that occur before the first change.
const nothingChanged = "nothing was changed"

// retryAdvice ends errors after which a run can be repeated.
const retryAdvice = "run the same again: what was done is skipped"

// Release is a Helm release that a cluster has to have.
type Release struct {
	request.HelmRelease

	Kubeconfig string // secret
	// Endpoints are the control planes' own addresses, of which the first that responds is used. The shared address may
	// not be up yet. Empty = the server of the kubeconfig.
	Endpoints []netip.Addr
	Timeout   time.Duration // of the whole installation
	// Sequential says that minor versions cannot be skipped.
	Sequential bool
}

// Install installs or upgrades a Helm release in a cluster, with objects that belong to it.
//
// It first fetches the chart and checks its digest and the values, so that an error has changed nothing. Then it
//  1. applies the objects before the release;
//  2. installs the release, or upgrades it if its chart or its values differ. It resumes an interrupted installation or
//     upgrade, without removing what runs;
//  3. waits for the release's Deployments, DaemonSets and StatefulSets;
//  4. applies the objects after the release, which may be of kinds that it registers itself, and deletes those of
//     earlier requests that are no longer wanted.
//
// A release that belongs to a HelmRelease of Flux is left alone, and so are objects that Flux applies from Git. The
// objects before and after a release are applied in any case.
//
// Definitions of custom resources serve all their versions while pods of an older minor run. If minors cannot be
// skipped (Sequential), an upgrade that skips one is refused.
//
// While the Kubernetes API does not respond, calls are retried until the timeout.
func Install(ctx context.Context, release Release, progress io.Writer) error {
	r, err := newReleaser(release, progress)
	if err != nil {
		return err
	}

	kube.ManagedFieldsManager = fieldManager

	return r.run(ctx)
}

// releaser installs a release in a cluster.
type releaser struct {
	req     Release
	cluster *cluster
	before  []*unstructured.Unstructured
	after   []*unstructured.Unstructured
	chart   *chart.Chart
	values  map[string]any

	mu       sync.Mutex
	progress io.Writer
	last     string // line
	lastAt   time.Time
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

// run reconciles everything within the timeout.
func (r *releaser) run(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, r.req.Timeout)
	defer cancel()

	return r.explain(ctx, r.reconcileAll(limited))
}

// reconcileAll reconciles the objects before the release, the release unless Flux owns it, and the objects after it.
func (r *releaser) reconcileAll(ctx context.Context) error {
	owner, err := retryValue(ctx, r, r.fluxOwner)
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
		r.printf("release %s/%s is %s's: it is left alone, and the stack's chart and values are not applied",
			r.req.Namespace, r.req.Name, owner)
	}

	if err != nil {
		return err
	}

	return r.applyAfter(ctx)
}

// fetcher has a long timeout and retries, because `up` waits for the download.
var fetcher = charts.Fetcher{Timeout: 2 * time.Minute, Attempts: 3} //nolint:gochecknoglobals // a constant

// fetch downloads the chart and checks the values. It changes nothing.
func (r *releaser) fetch(ctx context.Context) error {
	var (
		digest string
		err    error
	)

	if r.chart, digest, err = fetcher.Chart(ctx, r.req.Chart, r.req.Version, r.req.Digest); err != nil {
		return fmt.Errorf("%w; %s", err, nothingChanged)
	}

	if r.req.Digest == "" {
		r.printf("the chart %s %s has the digest %s: set it, so that no other chart is accepted", r.req.Chart, r.req.Version, digest)
	}

	if unknown := charts.UnknownValues(r.chart, r.values); len(unknown) > 0 {
		return fmt.Errorf("the chart %s %s does not have these values, and would ignore them; %s:\n  %s",
			r.chart.Name(), r.chart.Metadata.Version, nothingChanged, strings.Join(unknown, "\n  "))
	}

	return nil
}

// applyBefore applies the objects before the release, and returns those of manifest files.
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

// reconcileRelease installs or upgrades the release. Afterwards no pods of an older version run, and it applies the
// definitions as they are.
func (r *releaser) reconcileRelease(ctx context.Context, definitions []*unstructured.Unstructured) error {
	if err := r.retry(ctx, r.installOrUpgrade); err != nil {
		return err
	}

	if err := r.awaitRollout(ctx); err != nil {
		return err
	}

	return r.applyDefinitions(ctx, definitions, r.req.Version)
}

// applyAfter applies the objects after the release, and deletes unwanted ones.
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

// explain adds to an error what the reader can do.
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

// retry repeats a call while the Kubernetes API does not respond, or does not know a kind yet.
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

// isTransient reports whether an error is that of an API that restarts, or that does not know a kind yet.
func isTransient(err error) bool {
	return matchesAny(err, append(connectionErrors(), meta.IsNoMatchError, apierrors.IsServerTimeout,
		apierrors.IsServiceUnavailable, apierrors.IsTooManyRequests, apierrors.IsTimeout, apierrors.IsInternalError,
		apierrors.IsConflict))
}

// connectionErrors are predicates for the errors of an unreachable API.
func connectionErrors() []func(error) bool {
	return []func(error) bool{
		utilnet.IsConnectionRefused, utilnet.IsConnectionReset, utilnet.IsProbableEOF, utilnet.IsTimeout,
		utilnet.IsHTTP2ConnectionLost,
	}
}

// matchesAny reports whether an error, or one that it joins, is of one of the kinds.
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

// printf writes a line of progress. It drops a repetition of the last line until a reminder is due.
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
