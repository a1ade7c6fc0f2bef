package platform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
)

// maxHistory is the number of revisions of a release that Helm keeps.
const maxHistory = 10

// revisionLabel marks the record of a revision that this program created. Its value is the number of the revision,
// because Helm copies labels to later revisions.
const revisionLabel = "talos-proxmox/revision"

func (r *releaser) helm() (*action.Configuration, error) {
	cfg := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))

	r.cluster.mapper.Reset() // definitions may be new

	scoped, err := r.cluster.withNamespace(r.req.Namespace)
	if err != nil {
		return nil, err
	}

	return cfg, cfg.Init(scoped, r.req.Namespace, "secret")
}

// newestRevision returns the record of the newest revision; nil if there is no release.
func (r *releaser) newestRevision(cfg *action.Configuration) (*release.Release, error) {
	found, err := cfg.Releases.Last(r.req.Name)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil //nolint:nilnil // as the comment says
	}

	if err != nil {
		return nil, fmt.Errorf("unable to read the releases of %s: %w", r.req.Namespace, err)
	}

	newest, ok := found.(*release.Release)
	if !ok {
		return nil, fmt.Errorf("its record has a type that this program does not know: %T", found)
	}

	return newest, nil
}

// installOrUpgrade installs or upgrades the release, unless it is up to date.
func (r *releaser) installOrUpgrade(ctx context.Context) error {
	cfg, err := r.helm()
	if err != nil {
		return err
	}

	newest, err := r.newestRevision(cfg)
	if err != nil {
		return err
	}

	if newest == nil {
		return r.install(ctx, cfg, 1)
	}

	switch status := newest.Info.Status; status {
	case common.StatusUninstalled:
		return r.install(ctx, cfg, newest.Version+1)
	case common.StatusUninstalling:
		return errors.New("it is being uninstalled: wait until that has ended, or complete it with `helm uninstall`")
	case common.StatusDeployed:
		same, err := r.isUpToDate(newest)
		if err != nil {
			return err
		}

		if same {
			r.printf("release %s/%s: revision %d has %s %s and these values already", r.req.Namespace, r.req.Name,
				newest.Version, r.chart.Name(), r.chart.Metadata.Version)

			return nil
		}
	case common.StatusPendingInstall, common.StatusPendingUpgrade, common.StatusPendingRollback:
		if err := r.resume(cfg, newest); err != nil {
			return err
		}
	case common.StatusFailed, common.StatusSuperseded, common.StatusUnknown:
	}

	return r.upgrade(ctx, cfg, newest)
}

// resume marks a pending revision of an interrupted run as failed, so that an upgrade can continue it. Helm has no
// other way that removes nothing.
func (r *releaser) resume(cfg *action.Configuration, pending *release.Release) error {
	status := pending.Info.Status
	if pending.Labels[revisionLabel] != strconv.Itoa(pending.Version) {
		return fmt.Errorf("revision %d is %s since %s by another program: wait until it has finished, or, if it is gone, "+
			"run `helm --namespace %s rollback %s`", pending.Version, status,
			pending.Info.LastDeployed.UTC().Format("2006-01-02 15:04:05 UTC"), r.req.Namespace, r.req.Name)
	}

	pending.SetStatus(common.StatusFailed, "Interrupted")

	if err := cfg.Releases.Update(pending); err != nil {
		return fmt.Errorf("unable to resume revision %d, which is %s: %w", pending.Version, status, err)
	}

	r.printf("release %s/%s: revision %d was %s when a run was interrupted: it resumes", r.req.Namespace, r.req.Name,
		pending.Version, status)

	return nil
}

// isUpToDate reports whether a revision has this chart and these values.
func (r *releaser) isUpToDate(newest *release.Release) (bool, error) {
	for _, pair := range [][2]any{{newest.Chart, r.chart}, {newest.Config, r.values}} {
		old, err := normalize(pair[0])
		if err != nil {
			return false, err
		}

		wanted, err := normalize(pair[1])
		if err != nil {
			return false, err
		}

		if !bytes.Equal(old, wanted) {
			return false, nil
		}
	}

	return true, nil
}

// normalize returns a value's JSON as it would be read from a record.
func normalize(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}

	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, err
	}

	if values, ok := plain.(map[string]any); plain == nil || ok && len(values) == 0 {
		return []byte("{}"), nil
	}

	return json.Marshal(plain)
}

// install installs the release. It adopts objects that have the release's labels, although no record has them.
func (r *releaser) install(ctx context.Context, cfg *action.Configuration, revision int) error {
	do := action.NewInstall(cfg)
	do.ReleaseName, do.Namespace, do.Replace = r.req.Name, r.req.Namespace, true
	do.ServerSideApply, do.ForceConflicts = true, true
	do.WaitStrategy, do.Timeout = kube.HookOnlyStrategy, r.req.Timeout
	do.Labels = map[string]string{revisionLabel: strconv.Itoa(revision)}

	r.printf("release %s/%s: %s %s is installed", r.req.Namespace, r.req.Name, r.chart.Name(), r.chart.Metadata.Version)

	_, err := do.RunWithContext(ctx, r.chart, r.values)

	return err
}

func (r *releaser) upgrade(ctx context.Context, cfg *action.Configuration, newest *release.Release) error {
	do := action.NewUpgrade(cfg)
	do.Namespace, do.MaxHistory, do.ResetValues = r.req.Namespace, maxHistory, true
	do.ServerSideApply, do.ForceConflicts = "true", true
	do.WaitStrategy, do.Timeout = kube.HookOnlyStrategy, r.req.Timeout
	do.Labels = map[string]string{revisionLabel: strconv.Itoa(newest.Version + 1)}

	r.printf("release %s/%s: revision %d gets %s %s", r.req.Namespace, r.req.Name, newest.Version+1, r.chart.Name(),
		r.chart.Metadata.Version)

	_, err := do.RunWithContext(ctx, r.req.Name, r.chart, r.values)

	return err
}
