package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
)

// leaderElection is how fast another controller manager or scheduler takes over; Kubernetes' own 15, 10 and 2 s are
// long for a lab, where everything starts again often.
var leaderElection = arguments{
	"leader-elect-lease-duration": "6s", "leader-elect-renew-deadline": "4s",
	"leader-elect-retry-period": "1s",
}

// What of the API server's arguments the configuration adds to, and what it cannot change.
var (
	apiServerAdditive = []string{"enable-admission-plugins", "feature-gates", "authorization-mode", "tls-cipher-suites"}
	apiServerDenied   = []string{
		"etcd-servers", "client-ca-file", "requestheader-client-ca-file", "proxy-client-cert-file", "proxy-client-key-file",
		"encryption-provider-config", "etcd-cafile",
		"etcd-certfile", "etcd-keyfile", "kubelet-client-certificate", "kubelet-client-key", "service-account-key-file",
		"service-account-signing-key-file", "tls-cert-file",
		"tls-private-key-file", "authorization-config",
	}
	managerAdditive = []string{"service-cluster-ip-range", "controllers", "feature-gates"}
	managerDenied   = []string{
		"cluster-signing-cert-file", "cluster-signing-key-file", "authentication-kubeconfig", "authorization-kubeconfig",
		"root-ca-file", "service-account-private-key-file",
	}
	schedulerAdditive = []string{"feature-gates"}
	schedulerDenied   = []string{"kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig", "config"}
)

// KubernetesParts are the API server, the controller manager and the scheduler, in the order in which they are needed.
// The API server asks the machine's own etcd member, as it does on Talos.
func (h Host) KubernetesParts() ([]Part, error) {
	if err := errors.Join(h.writeKubernetesPKI(), h.writeConfigs()); err != nil {
		return nil, err
	}

	server, err := h.apiServer()
	if err != nil {
		return nil, err
	}

	manager, err := h.controllerManager()
	if err != nil {
		return nil, err
	}

	scheduler, err := h.scheduler()
	if err != nil {
		return nil, err
	}

	return []Part{server, manager, scheduler}, nil
}

// APIServer is where the machine's API server answers.
func (h Host) APIServer() string {
	return "https://" + hostPort(h.Address, h.Config.Cluster().LocalAPIServerPort())
}

func (h Host) apiServer() (Part, error) {
	c := h.Config.Cluster()
	endpoint := c.Endpoint().String()
	pki := func(name string) string { return h.path("pki/" + name) }

	args := arguments{
		"admission-control-config-file": h.path("config/admission.json"), "allow-privileged": "true",
		"anonymous-auth": "false", "api-audiences": endpoint,
		"bind-address": h.Address.String(), "advertise-address": h.Address.String(),
		"secure-port": itoa(c.LocalAPIServerPort()),
		// Endpoints are no place for loopback addresses, and nothing in a lab's pods would use them.
		"endpoint-reconciler-type": "none",
		"authorization-mode":       "Node,RBAC", "enable-admission-plugins": "NodeRestriction",
		"enable-bootstrap-token-auth": "true",
		"client-ca-file":              pki("ca.crt"), "tls-cert-file": pki("apiserver.crt"),
		"tls-private-key-file":         pki("apiserver.key"),
		"tls-min-version":              "VersionTLS12",
		"requestheader-client-ca-file": pki("aggregator-ca.crt"), "requestheader-allowed-names": "front-proxy-client",
		"requestheader-extra-headers-prefix": "X-Remote-Extra-", "requestheader-group-headers": "X-Remote-Group",
		"requestheader-username-headers": "X-Remote-User",
		"proxy-client-cert-file":         pki("front-proxy.crt"), "proxy-client-key-file": pki("front-proxy.key"),
		"encryption-provider-config": h.path("config/encryption.json"),
		"audit-policy-file":          h.path("config/audit-policy.json"), "audit-log-path": h.path("log/audit.log"),
		"audit-log-maxage": "30", "audit-log-maxbackup": "1", "audit-log-maxsize": "20",
		"etcd-servers": clientURL(h.Etcd), "etcd-cafile": pki("etcd/ca.crt"), "etcd-certfile": pki("apiserver-etcd.crt"),
		"etcd-keyfile":               pki("apiserver-etcd.key"),
		"kubelet-client-certificate": pki("apiserver-kubelet.crt"), "kubelet-client-key": pki("apiserver-kubelet.key"),
		"kubelet-preferred-address-types": "InternalIP,ExternalIP,Hostname",
		"service-account-issuer":          endpoint, "service-account-key-file": pki("service-account.key"),
		"service-account-signing-key-file": pki("service-account.key"),
		"service-cluster-ip-range":         strings.Join(c.Network().ServiceCIDRs(), ","), "profiling": "false",
	}

	if len(c.APIServer().AuthorizationConfig()) > 0 {
		delete(args, "authorization-mode")
		args["authorization-config"] = h.path("config/authorization.json")
	}

	if err := args.merge(c.APIServer().ExtraArgs(), apiServerAdditive, apiServerDenied); err != nil {
		return Part{}, fmt.Errorf("cluster.apiServer.extraArgs: %w", err)
	}

	return Part{Name: APIServer, Version: Tag(c.APIServer().Image()), Args: args.list()}, nil
}

func (h Host) controllerManager() (Part, error) {
	c := h.Config.Cluster()

	args := arguments{
		"use-service-account-credentials": "true", "allocate-node-cidrs": "true", "bind-address": h.Address.String(),
		"configure-cloud-routes":    "false",
		"cluster-cidr":              strings.Join(c.Network().PodCIDRs(), ","),
		"service-cluster-ip-range":  strings.Join(c.Network().ServiceCIDRs(), ","),
		"cluster-signing-cert-file": h.path("pki/signing.crt"), "cluster-signing-key-file": h.path("pki/signing.key"),
		"controllers":  "*,tokencleaner",
		"root-ca-file": h.path("pki/ca.crt"), "service-account-private-key-file": h.path("pki/service-account.key"),
		"profiling":    "false",
		"leader-elect": "true", "tls-min-version": "VersionTLS13", "node-monitor-grace-period": NodeGrace.String(),
		"node-monitor-period": "1s",
	}

	if err := h.asClient(args, "controller-manager"); err != nil {
		return Part{}, err
	}

	if err := args.merge(c.ControllerManager().ExtraArgs(), managerAdditive, managerDenied); err != nil {
		return Part{}, fmt.Errorf("cluster.controllerManager.extraArgs: %w", err)
	}

	return Part{Name: ControllerManager, Version: Tag(c.ControllerManager().Image()), Args: args.list()}, nil
}

func (h Host) scheduler() (Part, error) {
	c := h.Config.Cluster().Scheduler()
	args := arguments{
		"bind-address": h.Address.String(), "leader-elect": "true", "profiling": "false",
		"tls-min-version": "VersionTLS13",
	}

	if err := h.asClient(args, "scheduler"); err != nil {
		return Part{}, err
	}

	if len(c.Config()) > 0 {
		settings := maps.Clone(c.Config())
		settings["apiVersion"], settings["kind"] = "kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"
		settings["clientConnection"] = map[string]any{"kubeconfig": args["kubeconfig"]}

		// A file leaves the flags about leader election without effect.
		if settings["leaderElection"] == nil {
			settings["leaderElection"] = map[string]any{
				"leaseDuration": leaderElection["leader-elect-lease-duration"],
				"renewDeadline": leaderElection["leader-elect-renew-deadline"],
				"retryPeriod":   leaderElection["leader-elect-retry-period"],
			}
		}

		if err := h.writeJSON("config/scheduler.json", settings); err != nil {
			return Part{}, err
		}

		delete(args, "kubeconfig")
		args["config"] = h.path("config/scheduler.json")
	}

	if err := args.merge(c.ExtraArgs(), schedulerAdditive, schedulerDenied); err != nil {
		return Part{}, fmt.Errorf("cluster.scheduler.extraArgs: %w", err)
	}

	return Part{Name: Scheduler, Version: Tag(c.Image()), Args: args.list()}, nil
}

// asClient lets a part speak to the machine's own API server, with its own certificate.
func (h Host) asClient(args arguments, user string) error {
	file := "config/" + user + ".kubeconfig"

	err := h.writeJSON(file, map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "machine",
		"clusters": []any{map[string]any{
			"name":    "machine",
			"cluster": map[string]any{"server": h.APIServer(), "certificate-authority": h.path("pki/ca.crt")},
		}},
		"users": []any{map[string]any{
			"name": user,
			"user": map[string]any{
				"client-certificate": h.path("pki/" + user + ".crt"),
				"client-key":         h.path("pki/" + user + ".key"),
			},
		}},
		"contexts": []any{map[string]any{"name": "machine", "context": map[string]any{"cluster": "machine", "user": user}}},
	})

	for _, name := range []string{"kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"} {
		args[name] = h.path(file)
	}

	maps.Copy(args, leaderElection)

	return err
}

// writeConfigs writes the files that the API server reads beside its certificates.
func (h Host) writeConfigs() error {
	c := h.Config.Cluster()
	plugins := []any{}

	for _, p := range c.APIServer().AdmissionControl() {
		plugins = append(plugins, map[string]any{"name": p.Name(), "configuration": p.Configuration()})
	}

	authorizers := []any{map[string]any{"type": "Node", "name": "node"}, map[string]any{"type": "RBAC", "name": "rbac"}}

	for _, a := range c.APIServer().AuthorizationConfig() {
		one := map[string]any{"type": a.Type(), "name": a.Name()}
		if len(a.Webhook()) > 0 {
			one["webhook"] = a.Webhook()
		}

		authorizers = append(authorizers, one)
	}

	providers := []any{}

	for _, p := range []struct{ kind, key, secret string }{
		{"secretbox", "key2", c.SecretboxEncryptionSecret()},
		{"aescbc", "key1", c.AESCBCEncryptionSecret()},
	} {
		if p.secret != "" {
			providers = append(providers, map[string]any{p.kind: map[string]any{"keys": []any{map[string]any{
				"name":   p.key,
				"secret": p.secret,
			}}}})
		}
	}

	providers = append(providers, map[string]any{"identity": map[string]any{}})

	policy := maps.Clone(c.APIServer().AuditPolicy())
	if policy == nil {
		policy = map[string]any{
			"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
			"rules": []any{map[string]any{"level": "Metadata"}},
		}
	}

	return errors.Join(
		h.writeJSON("config/admission.json",
			map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins}),
		h.writeJSON("config/authorization.json",
			map[string]any{
				"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration",
				"authorizers": authorizers,
			}),
		h.writeJSON("config/encryption.json", map[string]any{
			"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
			"resources": []any{map[string]any{"resources": []any{"secrets"}, "providers": providers}},
		}),
		h.writeJSON("config/audit-policy.json", policy),
	)
}

func (h Host) writeJSON(name string, content any) error {
	text, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("unable to write %s: %w", name, err)
	}

	return h.write(name, text)
}
