package main

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

const enforceLabel = "pod-security.kubernetes.io/enforce"

// templates are where the pods of built-in kinds stand.
var templates = map[string][]string{ //nolint:gochecknoglobals // a table
	"Deployment": {"spec", "template"}, "DaemonSet": {"spec", "template"}, "StatefulSet": {"spec", "template"},
	"ReplicaSet": {"spec", "template"}, "Job": {"spec", "template"}, "Pod": {},
	"CronJob": {"spec", "jobTemplate", "spec", "template"},
}

// judgePrivileges holds every pod of the tree itself against what its namespace allows, with the library of Kubernetes;
// of charts' pods it has what the component states (requirements.yaml).
func (c *cluster) judgePrivileges() {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		c.report("unable to judge pods: %v", err)

		return
	}

	for one, o := range c.objects() {
		template, pods := templates[o.GetKind()]
		if !pods || o.GetNamespace() == "kube-system" { // which Talos exempts
			continue
		}

		var pod corev1.PodTemplateSpec
		if text, err := json.Marshal(fields(o, template...)); err != nil || json.Unmarshal(text, &pod) != nil {
			continue // said by its schema
		}

		level := api.LevelVersion{Level: c.allowed(o.GetNamespace()), Version: api.LatestVersion()}

		result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &metav1.ObjectMeta{}, &pod.Spec))
		if !result.Allowed {
			c.report("%s: namespace %s, which allows %s, refuses its pods (%s): label the namespace %s: privileged, or take that "+
				"away", one.at(o), o.GetNamespace(), level.Level, result.ForbiddenDetail(), enforceLabel)
		}
	}
}

// allowed is what the pods of a namespace may be; Talos enforces baseline where it says nothing.
func (c *cluster) allowed(namespace string) api.Level {
	if o := c.find("", "Namespace", "", namespace); o != nil {
		if level, err := api.ParseLevel(o.GetLabels()[enforceLabel]); err == nil && o.GetLabels()[enforceLabel] != "" {
			return level
		}
	}

	return api.LevelBaseline
}

// judgePrivileged wants the namespaces that a component's pods need to be privileged.
func (c *cluster) judgePrivileged(r requirements, folder string) {
	for _, namespace := range r.Privileged {
		if c.allowed(namespace) != api.LevelPrivileged {
			c.report("%s: %s needs the namespace %s to be privileged: label it %s: %s", folder, r.Component, namespace,
				enforceLabel, api.LevelPrivileged)
		}
	}
}
