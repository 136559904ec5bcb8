package gitops

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiserver "k8s.io/apiextensions-apiserver/pkg/cmd/server/testing"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// Versions of the API.
const (
	v1alpha1 = "v1alpha1"
	v1alpha2 = spec.Version
)

// kubernetes is a Kubernetes API server for custom resources, with an etcd of its own.
type kubernetes struct {
	t           *testing.T
	definitions clientset.Interface
	objects     dynamic.Interface
	etcd        *clientv3.Client
}

// nowhere is a kubeconfig, which the API server needs to start and never uses.
const nowhere = `apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: none, user: {username: none, password: none}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
current-context: none
`

// startKubernetes starts an API server without any custom resource.
func startKubernetes(t *testing.T) *kubernetes {
	t.Helper()
	k := &kubernetes{t: t}
	endpoint := k.startEtcd()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	check(t, os.WriteFile(kubeconfig, []byte(nowhere), 0o600))
	server := apiserver.StartTestServerOrDie(t, nil, []string{
		"--etcd-servers=" + endpoint, "--etcd-prefix=/registry",
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		// These ask the API server of a whole Kubernetes, which is not there.
		"--authentication-skip-lookup", "--authorization-always-allow-paths=*", "--enable-priority-and-fairness=false",
		"--disable-admission-plugins=NamespaceLifecycle,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,ValidatingAdmissionPolicy,MutatingAdmissionPolicy",
	}, nil)
	t.Cleanup(server.TearDownFn)
	var err error
	k.definitions, err = clientset.NewForConfig(server.ClientConfig)
	check(t, err)
	k.objects, err = dynamic.NewForConfig(server.ClientConfig)
	check(t, err)
	return k
}

// startEtcd starts an etcd and returns its URL.
func (k *kubernetes) startEtcd() string {
	k.t.Helper()
	config := embed.NewConfig()
	config.Dir, config.LogLevel = k.t.TempDir(), "error"
	config.UnsafeNoFsync = true // no test cuts the power
	free := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.AdvertiseClientUrls = free, free
	config.ListenPeerUrls, config.AdvertisePeerUrls = free, free
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	check(k.t, err)
	k.t.Cleanup(etcd.Close)
	endpoint := "http://" + etcd.Clients[0].Addr().String()
	k.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	check(k.t, err)
	k.t.Cleanup(func() { check(k.t, k.etcd.Close()) })
	return endpoint
}

// definition returns the definition of fleets that operators install, with the server of all tests
// as its webhook.
func definition(t *testing.T) *apiextensions.CustomResourceDefinition {
	t.Helper()
	return definitionOf(t, world(t).Server)
}

func definitionOf(t *testing.T, server *harness.Server) *apiextensions.CustomResourceDefinition {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "packaging", "release", "kubernetes", "crd.yaml"))
	check(t, err)
	var crd apiextensions.CustomResourceDefinition
	check(t, yaml.UnmarshalStrict(text, &crd))
	authority, err := os.ReadFile(caFile(server))
	check(t, err)
	convert := server.Info.AdminURL + "/convert"
	crd.Spec.Conversion.Webhook.ClientConfig = &apiextensions.WebhookClientConfig{URL: &convert, CABundle: authority}
	return &crd
}

// install installs a definition, and waits until the API server serves fleets.
func (k *kubernetes) install(crd *apiextensions.CustomResourceDefinition) {
	k.t.Helper()
	_, err := k.definitions.ApiextensionsV1().CustomResourceDefinitions().Create(k.t.Context(), crd, metav1.CreateOptions{})
	check(k.t, err)
	harness.Eventually(k.t, "fleets are served", func() error {
		now := k.definition()
		if !slices.ContainsFunc(now.Status.Conditions, func(c apiextensions.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensions.Established && c.Status == apiextensions.ConditionTrue
		}) {
			return fmt.Errorf("its conditions are %v", now.Status.Conditions)
		}
		return k.served(now)
	})
}

func (k *kubernetes) definition() *apiextensions.CustomResourceDefinition {
	k.t.Helper()
	crd, err := k.definitions.ApiextensionsV1().CustomResourceDefinitions().Get(k.t.Context(), "fleets."+spec.Group, metav1.GetOptions{})
	check(k.t, err)
	return crd
}

// served returns an error while a served version cannot be listed.
func (k *kubernetes) served(crd *apiextensions.CustomResourceDefinition) error {
	for _, v := range crd.Spec.Versions {
		if _, err := k.fleets(v.Name).List(k.t.Context(), metav1.ListOptions{}); v.Served && err != nil {
			return fmt.Errorf("list %s: %w", v.Name, err)
		}
	}
	return nil
}

// fleets is a client of fleets in a version of the API.
func (k *kubernetes) fleets(version string) dynamic.ResourceInterface {
	return k.objects.Resource(schema.GroupVersionResource{Group: spec.Group, Version: version, Resource: "fleets"})
}

// object is a fleet from YAML without apiVersion and kind.
func object(t *testing.T, version, text string) *unstructured.Unstructured {
	t.Helper()
	doc, err := yaml.YAMLToJSONStrict(fmt.Appendf(nil, "apiVersion: %s/%s\nkind: %s\n%s", spec.Group, version, spec.Kind, text))
	check(t, err)
	u := &unstructured.Unstructured{}
	check(t, u.UnmarshalJSON(doc))
	return u
}

func (k *kubernetes) create(version, text string) *unstructured.Unstructured {
	k.t.Helper()
	u, err := k.fleets(version).Create(k.t.Context(), object(k.t, version, text), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	check(k.t, err)
	return u
}

func (k *kubernetes) get(version, name string) *unstructured.Unstructured {
	k.t.Helper()
	u, err := k.fleets(version).Get(k.t.Context(), name, metav1.GetOptions{})
	check(k.t, err)
	return u
}

// stored returns what etcd has of an object.
func (k *kubernetes) stored(name string) *unstructured.Unstructured {
	k.t.Helper()
	resp, err := k.etcd.Get(k.t.Context(), "/registry/"+spec.Group+"/fleets/"+name)
	check(k.t, err)
	if len(resp.Kvs) != 1 {
		k.t.Fatalf("etcd has %d values for the fleet %s", len(resp.Kvs), name)
	}
	u := &unstructured.Unstructured{}
	check(k.t, u.UnmarshalJSON(resp.Kvs[0].Value))
	return u
}

// typed returns an object of v1alpha2 as the server's type, which must know all of its fields.
func typed(t *testing.T, u *unstructured.Unstructured) *spec.Fleet {
	t.Helper()
	if u.GetAPIVersion() != spec.APIVersion {
		t.Fatalf("%s is of %s, want %s", u.GetName(), u.GetAPIVersion(), spec.APIVersion)
	}
	doc, err := u.MarshalJSON()
	check(t, err)
	var f spec.Fleet
	check(t, json.Unmarshal(doc, &f))
	return &f
}
