package main

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

const enforceLabel = "pod-security.kubernetes.io/enforce"

// podTemplates are the paths of pod templates in built-in kinds.
var podTemplates = map[string][]string{ //nolint:gochecknoglobals // a table
	"Deployment": {"spec", "template"}, "DaemonSet": {"spec", "template"}, "StatefulSet": {"spec", "template"},
	"ReplicaSet": {"spec", "template"}, "Job": {"spec", "template"}, "Pod": {},
	"CronJob": {"spec", "jobTemplate", "spec", "template"},
}

// checkPodSecurity checks every pod in the tree against the Pod Security level of its namespace, with Kubernetes' own
// library. For the pods of charts, checkPrivileged checks what requirements.yaml says.
func (c *cluster) checkPodSecurity() {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		c.report("unable to check pods: %v", err)

		return
	}

	for comp, o := range c.objects() {
		template, pods := podTemplates[o.GetKind()]
		if !pods || o.GetNamespace() == "kube-system" { // exempt in Talos
			continue
		}

		var pod corev1.PodTemplateSpec
		if text, err := json.Marshal(fields(o, template...)); err != nil || json.Unmarshal(text, &pod) != nil {
			continue // checkObject reports it
		}

		level := api.LevelVersion{Level: c.podSecurityLevel(o.GetNamespace()), Version: api.LatestVersion()}

		result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &metav1.ObjectMeta{}, &pod.Spec))
		if !result.Allowed {
			c.report("%s: namespace %s, which allows %s, refuses its pods (%s): label the namespace %s: privileged, or remove that",
				comp.at(o), o.GetNamespace(), level.Level, result.ForbiddenDetail(), enforceLabel)
		}
	}
}

// podSecurityLevel returns the level that a namespace enforces: baseline without a label, which is Talos' default.
func (c *cluster) podSecurityLevel(namespace string) api.Level {
	if o := c.find("", "Namespace", "", namespace); o != nil {
		if level, err := api.ParseLevel(o.GetLabels()[enforceLabel]); err == nil && o.GetLabels()[enforceLabel] != "" {
			return level
		}
	}

	return api.LevelBaseline
}

// checkPrivileged checks that the namespaces of a component's privileged pods are labelled.
func (c *cluster) checkPrivileged(r requirements, folder string) {
	for _, namespace := range r.Privileged {
		if c.podSecurityLevel(namespace) != api.LevelPrivileged {
			c.report("%s: %s needs the namespace %s to be privileged: label it %s: %s", folder, r.Component, namespace,
				enforceLabel, api.LevelPrivileged)
		}
	}
}
