package proxmoxve

import (
	"testing"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

func reader() object {
	return object{"roleId": "Reader", "privileges": []any{"VM.Audit", "Datastore.Audit", "VM.Audit"}}
}

func readerOn(path string) object { return object{"path": path, "roleId": "Reader"} }

// newAccounts returns a lab with a role Reader, a user ci@pve and the user's token one, and a provider that may set
// passwords.
func newAccounts(t *testing.T) (*datacentre.Datacentre, testProvider) {
	t.Helper()

	dc, endpoint := newLab(t)
	require.NoError(t, dc.PutRole("Reader", "VM.Audit"))
	dc.Put(datacentre.Users, "ci@pve", datacentre.Config{"password": "a password"})
	dc.Put(datacentre.Tokens, "ci@pve!one", datacentre.Config{"value": "x", "privsep": "0"})

	s := Provider(testPoll, nil)
	require.NoError(t, s.Configure(t.Context(), p.ConfigureRequest{Args: toProperties(object{
		"endpoint": endpoint, "username": labRoot, "password": "a password", "insecure": true,
	})}))

	return dc, testProvider{t, s}
}

// TestPublishedBugsOfAccounts: the stand-in has the published provider's bugs, so that the program's workarounds are
// tested.
func TestPublishedBugsOfAccounts(t *testing.T) {
	t.Parallel()

	t.Run("a token's comment cannot be taken away", func(t *testing.T) {
		t.Parallel()

		dc, r := newAccounts(t)
		in := object{"userId": "ci@pve", "tokenName": "two", "comment": "c"}

		created, err := r.create(typeToken, in)
		require.NoError(t, err)

		changed := with(in, object{"comment": nil})

		state, err := r.change(typeToken, created.ID, changed, created.Properties)
		require.NoError(t, err)
		assert.Equal(t, "c", dc.Records(datacentre.Tokens)["ci@pve!two"]["comment"])
		assert.Contains(t, r.diff(typeToken, changed, r.read(typeToken, created.ID, changed, state).Properties), "comment")
	})

	t.Run("a user never leaves the last group", func(t *testing.T) {
		t.Parallel()

		dc, r := newAccounts(t)
		dc.Put(datacentre.Groups, "ops", nil)

		user := object{"userId": "ann@pve"}

		created, err := r.create(typeUser, with(user, object{"groups": []any{"ops"}}))
		require.NoError(t, err)

		state, err := r.change(typeUser, created.ID, user, created.Properties)
		require.NoError(t, err)
		assert.Empty(t, fromMap(state)["groups"], "the state says that he did")
		assert.Equal(t, "ann@pve", dc.Records(datacentre.Groups)["ops"]["users"])
		assert.Equal(t, []any{"ops"}, fromMap(r.read(typeUser, created.ID, user, state).Properties)["groups"])
	})

	t.Run("its own rule is one of its user's too", func(t *testing.T) {
		t.Parallel()

		_, r := newAccounts(t)
		user := object{"userId": "ann@pve"}

		created, err := r.create(typeUser, user)
		require.NoError(t, err)
		_, err = r.create(typeACL, with(readerOn("/vms"), object{"userId": "ann@pve"}))
		require.NoError(t, err)
		assert.Equal(
			t, map[string]p.DiffKind{"acls[0]": p.Delete},
			r.diff(typeUser, user, r.read(typeUser, created.ID, user, created.Properties).Properties),
		)
	})

	t.Run("a path that Proxmox writes in another way is gone", func(t *testing.T) {
		t.Parallel()

		_, r := newAccounts(t)
		in := with(readerOn("vms/"), object{"userId": "ci@pve"})

		created, err := r.create(typeACL, in)
		require.NoError(t, err)
		assert.Empty(t, r.read(typeACL, created.ID, in, created.Properties).ID)
	})
}

// TestDeletedResources deletes resources outside of Pulumi: a refresh notices where the published provider does.
func TestDeletedResources(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		token string
		in    object
		want  string // empty = a refresh removes it, and another deletion is no error
	}{
		"a role":    {typeRole, with(reader(), object{"roleId": "New"}), ""},
		"a rule":    {typeACL, with(readerOn("/vms"), object{"userId": "ci@pve"}), ""},
		"a mapping": {typeMapping, gpuMapping(), ""},
		"a file":    {typeDownloadFile, talosImage(), ""},
		"a user": {
			typeUser,
			object{"userId": "ann@pve"},
			"refreshing " + string(urn(typeUser)) + ": 1 error occurred:\n\t* error retrieving user: received an HTTP 500 response - " +
				"Reason: no such user ('ann@pve')\n\n",
		},
		"a token": {
			typeToken,
			object{"userId": "ci@pve", "tokenName": "two"},
			"Error reading user token: error retrieving user token: received an HTTP 500 response - " +
				"Reason: no such token 'two' for user 'ci@pve'",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			dc, r := newAccounts(t)
			created, err := r.create(test.token, test.in)
			require.NoError(t, err)

			in, state := r.check(test.token, test.in), created.Properties
			read := p.ReadRequest{ID: created.ID, Urn: urn(test.token), Inputs: in, Properties: state}

			refreshed, err := r.p.Read(t.Context(), read)
			require.NoError(t, err)
			assert.Equal(t, fromMap(state), fromMap(refreshed.Properties), "a refresh changes nothing")

			dc.Delete(datacentre.Roles, "New")
			dc.Delete(datacentre.Users, "ann@pve")
			dc.Delete(datacentre.Tokens, "ci@pve!two")
			dc.Delete(datacentre.PCIMappings, "gpu")

			for _, a := range dc.ACLs() {
				require.NoError(t, dc.DeleteACL(a))
			}

			removal := p.DeleteRequest{ID: created.ID, Urn: urn(test.token), Properties: state}
			if test.token == typeDownloadFile {
				require.NoError(t, r.p.Delete(t.Context(), removal))

				for _, task := range dc.Tasks() { // for the removal too, the published provider does not wait
					_, err := dc.WaitTask(t.Context(), task.UPID)
					require.NoError(t, err)
				}

				assert.Empty(t, dc.Volumes("pve1", "local", ""))
			}

			refreshed, err = r.p.Read(t.Context(), read)

			if test.want != "" {
				require.EqualError(t, err, test.want)
				require.Error(t, r.p.Delete(t.Context(), removal))

				return
			}

			require.NoError(t, err)
			assert.Empty(t, refreshed.ID)
			require.NoError(t, r.p.Delete(t.Context(), removal))
		})
	}
}
