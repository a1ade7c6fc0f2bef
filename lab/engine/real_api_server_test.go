package engine_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io/fs"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// issuer is an identity provider whose tokens the tests write.
type issuer struct {
	*httptest.Server

	t   *testing.T
	key *rsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()

	const bits = 2048

	key, err := rsa.GenerateKey(rand.Reader, bits)
	require.NoError(t, err)

	i := &issuer{t: t, key: key}
	mux := http.NewServeMux()
	answer := func(path string, content func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			assert.NoError(t, json.NewEncoder(w).Encode(content()))
		})
	}
	answer("/.well-known/openid-configuration", func() any {
		return map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"},
		}
	})
	answer("/keys", func() any {
		return map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one",
			"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()),
			"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
		}}}
	})

	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)

	return i
}

// authority returns the certificate of the issuer, as PEM.
func (i *issuer) authority() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}))
}

// token returns a token for a user with groups, with other claims.
func (i *issuer) token(user string, groups []string, claims map[string]any) string {
	i.t.Helper()

	all := map[string]any{
		"iss": i.URL, "aud": "kubernetes", "sub": user, "groups": groups, "hd": "example.org",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(all, claims)

	part := func(content any) string {
		text, err := json.Marshal(content)
		require.NoError(i.t, err)

		return base64.RawURLEncoding.EncodeToString(text)
	}
	signed := part(map[string]any{"alg": "RS256", "typ": "JWT", "kid": "one"}) + "." + part(all)
	digest := sha256.Sum256([]byte(signed))

	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, digest[:])
	require.NoError(i.t, err)

	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// TestRealAPIServer: users of an identity provider log in to the real API server, with the ClusterRoles of their groups
// and no others; pods must meet the standard, and the audit log has what the policy says. Changes restart no machine,
// and rights that are not set any more are gone. Contracts have the settings in two forms.
func TestRealAPIServer(t *testing.T) {
	t.Parallel()

	for name, versions := range map[string][2]string{
		"documents": {"v1.14.4", "v1.37.2"}, "flags and a file": {"v1.12.6", "v1.35.0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w, id := realWorld(t), newIssuer(t)
			s := w.stack(1, 0)
			s.Version = versions[0]
			s.Clusters[0].VIP = 0
			s.Clusters[0].YAML = strings.Join([]string{
				"apiServer:",
				"  oidc:",
				"    issuer: " + id.URL,
				"    clientId: kubernetes",
				"    ca: |",
				"      " + strings.ReplaceAll(strings.TrimSpace(id.authority()), "\n", "\n            "),
				"    requiredClaims: {hd: example.org}",
				"    clusterRoles: {cluster-admin: [platform], view: [developers]}",
				"  auditPolicy: {rules: [{level: Request, verbs: [create], resources: [{resources: [configmaps]}]}, {level: None}]}",
				"  podSecurity: {enforce: restricted, exemptNamespaces: [exempt]}",
			}, "\n      ")
			file := strings.Replace(s.yaml(t), "kubernetesVersion: v1.37.2", "kubernetesVersion: "+versions[1], 1)

			w.up(file)
			w.up(file, optup.ExpectNoChanges())

			alice, bob := w.clientOf(id.token("alice", []string{"platform"}, nil)), w.clientOf(id.token("bob", []string{"developers"}, nil))
			w.requireLogin(alice, "oidc:alice", "oidc:platform")
			requireAllowed(t, true, alice)
			requireAllowed(t, false, bob)

			_, err := bob.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err, "view")

			for _, token := range []string{
				id.token("eve", nil, map[string]any{"aud": "other"}), id.token("eve", nil, map[string]any{"hd": "example.com"}),
				newIssuer(t).token("eve", []string{"platform"}, map[string]any{"iss": id.URL}),
			} {
				_, err := w.clientOf(token).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
				assert.True(t, apierrors.IsUnauthorized(err), "%v", err)
			}

			requireAllowed(t, false, w.clientOf(id.token("eve", []string{"system:masters"}, nil)))
			w.requirePodSecurity(alice)
			w.requireAudited(alice)

			booted := w.bootTimes()
			w.up(strings.NewReplacer("cluster-admin: [platform], ", "", "enforce: restricted", "enforce: privileged").Replace(file))
			assert.Equal(t, booted, w.bootTimes())
			require.Eventually(t, func() bool { return createPod(t, w.kubeClient(), "default") == nil }, within, time.Second)
			requireAllowed(t, false, alice)

			without, _, _ := strings.Cut(file, "      apiServer:\n")
			_, rest, _ := strings.Cut(file, "exemptNamespaces: [exempt]}\n")
			w.up(without + rest)
			require.Eventually(t, func() bool {
				_, err := bob.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})

				return apierrors.IsUnauthorized(err)
			}, within, time.Second)

			bindings, err := w.kubeClient().RbacV1().ClusterRoleBindings().List(
				t.Context(), metav1.ListOptions{LabelSelector: "talos-proxmox/part=access"})
			require.NoError(t, err)
			assert.Empty(t, bindings.Items)
			w.up(without+rest, optup.ExpectNoChanges())
		})
	}
}

// clientOf returns a client of cluster one that logs in with a token.
func (w *world) clientOf(token string) kubernetes.Interface {
	w.t.Helper()

	admin, err := clientcmd.RESTConfigFromKubeConfig([]byte(w.kubeconfig()))
	require.NoError(w.t, err)

	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = token

	client, err := kubernetes.NewForConfig(config)
	require.NoError(w.t, err)

	return client
}

// requireLogin requires that a client is a user in a group. The API server asks the issuer in the background.
func (w *world) requireLogin(client kubernetes.Interface, user, group string) {
	w.t.Helper()

	var review *authenticationv1.SelfSubjectReview

	require.Eventually(w.t, func() bool {
		var err error

		review, err = client.AuthenticationV1().SelfSubjectReviews().Create(
			w.t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})

		return err == nil
	}, within, time.Second)
	assert.Equal(w.t, user, review.Status.UserInfo.Username)
	assert.Contains(w.t, review.Status.UserInfo.Groups, group)
}

// requireAllowed requires that a client may, or may not, read Secrets, which only administrators may.
func requireAllowed(t *testing.T, allowed bool, client kubernetes.Interface) {
	t.Helper()

	_, err := client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
	if allowed {
		require.NoError(t, err)
	} else {
		assert.True(t, apierrors.IsForbidden(err), "%v", err)
	}
}

// requirePodSecurity requires that the API server refuses a pod that is not restricted, but not in an exempt namespace.
func (w *world) requirePodSecurity(admin kubernetes.Interface) {
	w.t.Helper()

	for _, name := range []string{"exempt", "other"} {
		_, err := admin.CoreV1().Namespaces().Create(
			w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(w.t, err)
	}

	// Once the controller manager has created the namespaces' ServiceAccounts.
	require.Eventually(w.t, func() bool {
		err := createPod(w.t, admin, "other")

		return err != nil && strings.Contains(err.Error(), `violates PodSecurity "restricted:latest"`)
	}, within, time.Second)
	require.Eventually(w.t, func() bool { return createPod(w.t, admin, "exempt") == nil }, within, time.Second)
}

// createPod creates a pod with the rights that images have by themselves.
func createPod(t testing.TB, client kubernetes.Interface, namespace string) error {
	t.Helper()

	_, err := client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "any"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "example.org/a:v1"}}},
	}, metav1.CreateOptions{})

	return err
}

// requireAudited requires that the audit log has what the policy says, and nothing else.
func (w *world) requireAudited(client kubernetes.Interface) {
	w.t.Helper()

	_, err := client.CoreV1().ConfigMaps("default").Create(w.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "audited"}, Data: map[string]string{"seen": "in the log"},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)

	var log string

	require.NoError(w.t, filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "audit.log" {
			content, err := os.ReadFile(path) //nolint:gosec // the lab's own
			require.NoError(w.t, err)

			log += string(content)
		}

		return nil
	}))
	assert.Contains(w.t, log, `"username":"oidc:alice"`)
	assert.Contains(w.t, log, "in the log")
	assert.NotContains(w.t, log, `"verb":"list"`)
}
