// A small operator on controller-runtime, as its users write them: it greets every Greeting with a ConfigMap that
// it owns, says so in the status, and leads before it acts. A plain client-go informer counts ConfigMaps beside it.
//
// It prints one JSON object per line: {"event": "leading"}, {"event": "reconciled", "name": ...},
// {"event": "informed", "name": ...}.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const finalizer = "peers.kubeshard.dev/farewell"

var greetingKind = schema.GroupVersionKind{Group: "peers.kubeshard.dev", Version: "v1", Kind: "Greeting"}

var printing sync.Mutex

func say(event, name string) {
	printing.Lock()
	defer printing.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(map[string]string{"event": event, "name": name})
}

type reconciler struct {
	client.Client
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	greeting := newGreeting()
	if err := r.Get(ctx, request.NamespacedName, greeting); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if greeting.GetDeletionTimestamp() != nil {
		if controllerutil.RemoveFinalizer(greeting, finalizer) {
			say("farewell", request.Name)
			return ctrl.Result{}, r.Update(ctx, greeting)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(greeting, finalizer) {
		if err := r.Update(ctx, greeting); err != nil {
			return ctrl.Result{}, err
		}
	}
	to, _, _ := unstructured.NestedString(greeting.Object, "spec", "to")
	text := "hello, " + to
	configMap := &corev1.ConfigMap{}
	configMap.Name, configMap.Namespace = request.Name, request.Namespace
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, configMap, func() error {
		configMap.Data = map[string]string{"text": text}
		return controllerutil.SetControllerReference(greeting, configMap, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if said, _, _ := unstructured.NestedString(greeting.Object, "status", "said"); said != text {
		before := greeting.DeepCopy()
		_ = unstructured.SetNestedField(greeting.Object, text, "status", "said")
		_ = unstructured.SetNestedField(greeting.Object, greeting.GetGeneration(), "status", "observedGeneration")
		if err := r.Status().Patch(ctx, greeting, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, err
		}
		say("reconciled", request.Name)
	}
	return ctrl.Result{}, nil
}

func newGreeting() *unstructured.Unstructured {
	greeting := &unstructured.Unstructured{}
	greeting.SetGroupVersionKind(greetingKind)
	return greeting
}

func inform(ctx context.Context, namespace string) error {
	clientset, err := kubernetes.NewForConfig(ctrl.GetConfigOrDie())
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, time.Minute, informers.WithNamespace(namespace))
	informer := factory.Core().V1().ConfigMaps()
	_, err = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { say("informed", obj.(*corev1.ConfigMap).Name) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	// What the typed client wrote, the lister has after a moment.
	written := &corev1.ConfigMap{Data: map[string]string{"by": "client-go"}}
	written.Name = "typed"
	if _, err := clientset.CoreV1().ConfigMaps(namespace).Create(ctx, written, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	for {
		if _, err := informer.Lister().ConfigMaps(namespace).Get("typed"); err == nil {
			say("listed", "typed")
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
	<-ctx.Done()
	return nil
}

func run() error {
	namespace := flag.String("namespace", "", "where to work")
	flag.Parse()
	ctrl.SetLogger(klog.NewKlogr())
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	lease, renew, retry := 4*time.Second, 3*time.Second, 500*time.Millisecond
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                        scheme,
		Cache:                         crcache.Options{DefaultNamespaces: map[string]crcache.Config{*namespace: {}}},
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		LeaderElection:                true,
		LeaderElectionID:              "greetings",
		LeaderElectionNamespace:       *namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
	})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).For(newGreeting()).Owns(&corev1.ConfigMap{}).Complete(&reconciler{manager.GetClient()})
	if err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	go func() {
		<-manager.Elected()
		say("leading", "")
	}()
	failed := make(chan error, 1)
	go func() { failed <- inform(ctx, *namespace) }()
	go func() { failed <- manager.Start(ctx) }()
	for range 2 {
		if err := <-failed; err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
