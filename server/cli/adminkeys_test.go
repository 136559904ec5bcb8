package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

// newAdminKey is what the commands that create an admin key print with -o json.
type newAdminKey struct {
	adminapi.AdminKeyItem
	File string `json:"api_key_file"`
}

func TestAdminKeysAreListedRotatedAndRevoked(t *testing.T) {
	o, _ := loggedIn(t)
	o.fails(2, []string{"admin-keys", "create"}, "the name of the person or program")
	o.fails(1, []string{"admin-keys", "create", "ci", "--expires", "soon"}, "muster: expiration: ")

	ci := asJSON[newAdminKey](o, "admin-keys", "create", "ci", "--expires", "2160h")
	o.contains(o.run("admin-keys", "list"), "ID", "LAST USED", "ci", "active", "first key", "never")
	o.fails(1, []string{"admin-keys", "create", "ci"}, "rotate it")
	o.fails(1, []string{"admin-keys", "rotate", ci.Item.Id}, "only its owner rotates it")
	t.Setenv("MUSTER_API_KEY", o.secretIn(ci.File))
	o.run("status")

	next := asJSON[newAdminKey](o, "admin-keys", "rotate", ci.Item.Id)
	if next.Item.Name != "ci" || next.Item.Id == ci.Item.Id {
		t.Errorf("the new key is %+v", next.Item)
	}
	o.fails(1, []string{"status"}, "has been revoked")
	t.Setenv("MUSTER_API_KEY", o.secretIn(next.File))
	o.run("status")
	o.fails(1, []string{"admin-keys", "rotate", next.Item.Id, "--grace", "1000h"}, "muster: grace: ")
	if got := o.run("admin-keys", "revoke", next.Item.Id); got != "revoked\n" {
		t.Errorf("revoke prints %q", got)
	}
	t.Setenv("MUSTER_API_KEY", "")
	list := asJSON[adminapi.AdminKeyList](o, "admin-keys", "list")
	if list.Total != 3 || list.Items[0].Active || list.Items[1].Active {
		t.Errorf("the list is %+v", list.Items)
	}
	o.fails(1, []string{"admin-keys", "revoke", list.Items[2].Id}, "lock everybody out")
}

// The output of a test is no terminal.
func TestSecretsAreNotPrintedToAPipe(t *testing.T) {
	o, _ := loggedIn(t)
	folder := filepath.Join(o.home, ".config", "muster")
	for _, args := range [][]string{
		{"admin-keys", "create", "human"},
		{"admin-keys", "create", "json", "-o", "json"},
		{"keys", "create"},
		{"keys", "create", "-o", "json"},
		{"webhooks", "add", "chat", "https://hooks.example.com/x"},
		{"webhooks", "add", "mail", "https://hooks.example.com/y", "-o", "json"},
	} {
		before, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		text := o.run(args...)
		after, err := os.ReadDir(folder)
		if err != nil || len(after) != len(before)+1 {
			t.Fatalf("muster %s made %d files, %v", strings.Join(args, " "), len(after)-len(before), err)
		}
		known := map[string]bool{}
		for _, e := range before {
			known[e.Name()] = true
		}
		for _, e := range after {
			if known[e.Name()] {
				continue
			}
			file := filepath.Join(folder, e.Name())
			o.contains(text, file)
			if secret := o.secretIn(file); len(secret) < 20 || strings.Contains(text, secret) {
				t.Errorf("muster %s prints the secret:\n%s", strings.Join(args, " "), text)
			}
		}
	}
	// A secret that was not created leaves no file.
	before, _ := os.ReadDir(folder)
	o.fails(1, []string{"admin-keys", "create", "human"}, "rotate it")
	if after, err := os.ReadDir(folder); err != nil || len(after) != len(before) {
		t.Errorf("a refused command left %d files, %v", len(after)-len(before), err)
	}
}

func TestFirstKeysAreNotPrintedToALog(t *testing.T) {
	o := newOperator(t)
	for _, format := range []string{"human", "json"} {
		data := t.TempDir()
		out, errOut, stop := o.startServer("--data", data, "-o", format)
		for _, name := range []string{"first-admin-key", "first-enrollment-token"} {
			file := filepath.Join(data, name)
			o.contains(out, file)
			if secret := o.secretIn(file); len(secret) < 20 || strings.Contains(out+errOut, secret) {
				t.Errorf("-o %s prints %s:\n%s", format, name, out+errOut)
			}
		}
		stop()
	}
}
