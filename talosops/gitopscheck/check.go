package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// report is what a check of a whole tree has found.
type report struct {
	clusters   []string // folders
	components []string // folders, those of no cluster among them
	unseen     []string // charts that nothing can be said of
	problems   []string
}

// checkTree judges every cluster of a repository's folder (gitops), and every component that no cluster lists as if one
// did. withCharts has it ask the repositories of charts for what releases install.
func checkTree(ctx context.Context, repository, folder string, withCharts bool) (report, error) {
	known, err := loadSchemas(ctx, sources)
	if err != nil {
		return report{}, err
	}

	copied, err := os.MkdirTemp("", "gitopscheck-")
	if err != nil {
		return report{}, err
	}
	defer os.RemoveAll(copied) //nolint:errcheck // a temporary folder

	t, err := openTree(repository, copied)
	if err != nil {
		return report{}, err
	}

	found := report{}
	if found.problems, err = judgeSecrets(repository, folder); err != nil {
		return report{}, err
	}

	found.problems = append(found.problems, t.judgeLinks(folder)...)

	if found.clusters, err = foldersWith(repository, path.Join(folder, "clusters/*"), "kustomization.yaml"); err != nil {
		return report{}, err
	}

	if len(found.clusters) == 0 {
		return report{}, fmt.Errorf("%s/clusters has no cluster: a folder with kustomization.yaml", folder)
	}

	var all []*cluster

	used := map[string]bool{}

	for _, name := range found.clusters {
		c := t.resolve(name)
		all = append(all, c)

		for _, one := range c.components {
			used[path.Dir(one.folder)] = true
		}
	}

	trials, err := newTrials(t, folder, found.clusters[len(found.clusters)-1])
	if err != nil {
		return report{}, err
	}

	for _, one := range trials.components {
		found.components = append(found.components, one)
		if used[one] {
			continue
		}

		c, err := trials.with(one)
		if err != nil {
			found.problems = append(found.problems, err.Error())

			continue
		}

		all = append(all, c)
	}

	var got map[chartSource]gotChart
	if withCharts {
		got = getCharts(ctx, all)
	}

	for _, c := range all {
		c.judge(known)
		t.judgeRequirements(c)

		if withCharts {
			found.unseen = append(found.unseen, c.judgeCharts(got)...)
		}

		found.problems = append(found.problems, c.problems...)
	}

	slices.Sort(found.problems)
	slices.Sort(found.unseen)
	found.problems, found.unseen = slices.Compact(found.problems), slices.Compact(found.unseen)

	return found, nil
}

// judgeRequirements reads what a cluster's components need, and holds the tree against what concerns it.
func (t *tree) judgeRequirements(c *cluster) {
	for _, one := range c.components {
		needs, err := readRequirements(t.root, one.folder)
		if err != nil {
			c.report("%s", strings.ReplaceAll(err.Error(), t.root+"/", ""))

			continue
		}

		c.judgePrivileged(needs, path.Dir(one.folder))
	}
}

// foldersWith lists the folders of a pattern that have a file.
func foldersWith(repository, pattern, file string) ([]string, error) {
	matches, err := fs.Glob(os.DirFS(repository), path.Join(pattern, file))
	if err != nil {
		return nil, err
	}

	for i := range matches {
		matches[i] = path.Dir(matches[i])
	}

	return matches, nil
}

// trials are clusters that nobody has, each with a component that no cluster lists.
type trials struct {
	tree *tree
	// folder of the tree, and a cluster that the trials are made of.
	folder, model string
	resources     []string // of the model's components, as folders
	components    []string
	names         map[string]string   // of Flux Kustomizations, by component
	dependsOn     map[string][]string // by component
}

func newTrials(t *tree, folder, model string) (*trials, error) {
	made := &trials{tree: t, folder: folder, model: model, names: map[string]string{}, dependsOn: map[string][]string{}}

	err := fs.WalkDir(os.DirFS(t.root), folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "flux.yaml" {
			return err
		}

		var flux struct {
			Metadata struct{ Name string }
			Spec     struct {
				DependsOn []struct{ Name string } `yaml:"dependsOn"`
			}
		}

		content, err := os.ReadFile(filepath.Join(t.root, file))
		if err == nil {
			err = yaml.Unmarshal(content, &flux)
		}

		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}

		component := path.Dir(file)
		made.components = append(made.components, component)
		made.names[component] = flux.Metadata.Name

		for _, one := range flux.Spec.DependsOn {
			made.dependsOn[component] = append(made.dependsOn[component], one.Name)
		}

		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("unable to find components: %w", err)
	}

	for _, one := range t.resolve(model).components {
		if component := path.Dir(one.folder); one.name != "" && slices.Contains(made.components, component) {
			made.resources = append(made.resources, component)
		}
	}

	return made, nil
}

// with resolves the model with a component more, what that depends on, and its secret; another component of its name
// gives way.
func (t *trials) with(component string) (*cluster, error) {
	resources := slices.DeleteFunc(slices.Clone(t.resources), func(r string) bool {
		return t.names[r] == t.names[component]
	})
	resources = append(resources, component)

	for i := 0; i < len(resources); i++ {
		for _, name := range t.dependsOn[resources[i]] {
			if slices.ContainsFunc(resources, func(r string) bool { return t.names[r] == name }) {
				continue
			}

			if found := slices.IndexFunc(t.components, func(r string) bool { return t.names[r] == name }); found >= 0 {
				resources = append(resources, t.components[found])
			}
		}
	}

	files, settings := []string{"settings.yaml"}, map[string]string{}

	if example := path.Join(component, "secret"+exampleSuffix); exists(t.tree.root, example) {
		resources = append(resources, example)
	}

	for _, one := range resources {
		inside, err := filepath.Rel(path.Join(t.folder, "clusters/trial"), one)
		if err != nil {
			return nil, err
		}

		files = append(files, inside)

		if path.Ext(one) != "" {
			continue // its secret
		}

		needs, err := readRequirements(t.tree.root, path.Join(one, "manifests"))
		if err != nil {
			return nil, err
		}

		maps.Copy(settings, needs.Settings)
	}

	configMap, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": settings,
		"metadata": map[string]string{"name": "cluster-settings", "namespace": fluxNamespace},
	})
	if err != nil {
		return nil, err
	}

	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": files, "components": []string{"../../infrastructure/defaults"},
	})
	if err != nil {
		return nil, err
	}

	folder := filepath.Join(t.tree.root, t.folder, "clusters/trial")
	if err := errors.Join(
		os.MkdirAll(folder, 0o700),
		os.WriteFile(filepath.Join(folder, "kustomization.yaml"), text, 0o600),
		os.WriteFile(filepath.Join(folder, "settings.yaml"), configMap, 0o600),
	); err != nil {
		return nil, fmt.Errorf("unable to try %s: %w", component, err)
	}

	c := t.tree.resolve(path.Join(t.folder, "clusters/trial"))
	for i := range c.problems {
		c.problems[i] = component + ", as part of a cluster: " + c.problems[i]
	}

	return c, nil
}

func exists(root, file string) bool {
	_, err := os.Stat(filepath.Join(root, file))

	return err == nil
}
