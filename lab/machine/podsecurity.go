package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// podSecurityLabel is the label of a namespace that sets its Pod Security level.
const podSecurityLabel = "pod-security.kubernetes.io/enforce"

// refusePod is the API server's refusal of a pod; empty when it takes it. The caller holds the lock.
func (e *etcd) refusePod(namespace, name string, spec corev1.PodSpec) string {
	if class := spec.RuntimeClassName; class != nil && e.objects[objectKey("runtimeclasses", "", *class)] == nil {
		return fmt.Sprintf("pods %q is forbidden: pod rejected: RuntimeClass %q not found", name, *class)
	}

	account := cmp.Or(spec.ServiceAccountName, spec.DeprecatedServiceAccount, "default")
	if account != "default" && e.objects[objectKey("serviceaccounts", namespace, account)] == nil {
		return fmt.Sprintf("pods %q is forbidden: error looking up service account %s/%s: serviceaccount %q not found", name, namespace, account, account)
	}

	level := e.podSecurity(namespace)
	if level != "baseline" && level != "restricted" {
		return ""
	}

	if broken := baselineViolations(spec); len(broken) > 0 {
		return fmt.Sprintf("pods %q is forbidden: violates PodSecurity \"%s:latest\": %s", name, level, strings.Join(broken, ", "))
	}

	return ""
}

// podSecurity is the level that is enforced in a namespace: its label's, else what the API server's configuration says.
func (e *etcd) podSecurity(namespace string) string {
	var configured podSecurityConfig

	for _, m := range e.running {
		for _, plugin := range m.config.Cluster().APIServer().AdmissionControl() {
			if plugin.Name() == "PodSecurity" {
				_ = recode(plugin.Configuration(), &configured) // an odd configuration enforces nothing
			}
		}
	}

	if slices.Contains(configured.Exemptions.Namespaces, namespace) {
		return ""
	}

	if o := e.objects[objectKey("namespaces", "", namespace)]; o != nil {
		if level := o.object(0).Metadata.Labels[podSecurityLabel]; level != "" {
			return level
		}
	}

	return configured.Defaults.Enforce
}

// podSecurityConfig is what the lab reads of a PodSecurityConfiguration.
type podSecurityConfig struct {
	Defaults   struct{ Enforce string }
	Exemptions struct{ Namespaces []string }
}

// baselineViolations are the rules of the baseline level that a pod breaks, in the API server's words.
func baselineViolations(spec corev1.PodSpec) []string {
	var broken, host, paths, privileged []string

	for name, used := range map[string]bool{"hostNetwork=true": spec.HostNetwork, "hostPID=true": spec.HostPID, "hostIPC=true": spec.HostIPC} {
		if used {
			host = append(host, name)
		}
	}

	slices.Sort(host)

	for _, v := range spec.Volumes {
		if v.HostPath != nil {
			paths = append(paths, fmt.Sprintf("%q", v.Name))
		}
	}

	for _, c := range spec.Containers {
		if c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged) {
			privileged = append(privileged, fmt.Sprintf("%q", c.Name))
		}
	}

	if len(host) > 0 {
		broken = append(broken, "host namespaces ("+strings.Join(host, ", ")+")")
	}

	if len(paths) > 0 {
		broken = append(broken, "hostPath volumes ("+plural("volume", paths)+")")
	}

	if len(privileged) > 0 {
		broken = append(broken, "privileged ("+plural("container", privileged)+" must not set securityContext.privileged=true)")
	}

	return broken
}

func plural(word string, names []string) string {
	if len(names) > 1 {
		word += "s"
	}

	return word + " " + strings.Join(names, ", ")
}
