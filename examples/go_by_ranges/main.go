// A controller on client-go that is a shard of a ring sharded by ranges, beside others in any language. Pages get a
// status that says who has shown them. docs/shard-in-any-language.md explains each request.
//
// As of client-go 0.38, informers have SetShardSelector, which also leaves out what an API server sends that does not
// know the selector. Here the option is set for each list and watch, and the hashes are compared in `Owns`.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
)

const workers = 5

var pages = schema.GroupVersionResource{Group: "example.kubeshard.dev", Version: "v1", Resource: "pages"}

type controller struct {
	name   string
	takes  time.Duration
	client dynamic.Interface
}

// work is about one share: it begins with a list of it, and returns when nothing runs any more.
func (c *controller) work(ctx context.Context, share *Share) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	informer := dynamicinformer.NewFilteredDynamicInformer(c.client, pages, metav1.NamespaceAll, 0, cache.Indexers{},
		func(options *metav1.ListOptions) {
			options.ShardSelector = share.Selector()
			if options.ResourceVersion == "0" { // of an API server that may lag behind the hand-over
				options.ResourceVersion = ""
			}
		}).Informer()
	add := func(object any) {
		if page, is := object.(*unstructured.Unstructured); is && share.Owns(page.GetUID()) {
			queue.Add(cache.MetaObjectToName(page))
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, object any) { add(object) },
	})
	if err != nil {
		log.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		for range workers {
			running.Go(func() { c.take(queue, informer.GetStore()) })
		}
	}
	<-ctx.Done()
	queue.ShutDown() // workers end what they have begun
	running.Wait()
}

func (c *controller) take(queue workqueue.TypedRateLimitingInterface[cache.ObjectName], store cache.Store) {
	for {
		name, stopping := queue.Get()
		if stopping {
			return
		}
		object, exists, err := store.GetByKey(name.String())
		if err == nil && exists && !queue.ShuttingDown() {
			err = c.reconcile(object.(*unstructured.Unstructured).DeepCopy())
		}
		if err == nil {
			queue.Forget(name)
		} else {
			queue.AddRateLimited(name)
		}
		queue.Done(name)
	}
}

// reconcile is not cancelled: a hand-over waits for it. Its write has the version that it has read, so that it takes
// effect only if nobody has written since.
func (c *controller) reconcile(page *unstructured.Unstructured) error {
	if by, _, _ := unstructured.NestedString(page.Object, "status", "shownBy"); by == c.name {
		return nil
	}
	log.Printf("begin %s", page.GetName())
	defer log.Printf("end %s", page.GetName())
	time.Sleep(c.takes)
	if err := unstructured.SetNestedField(page.Object, c.name, "status", "shownBy"); err != nil {
		return err
	}
	_, err := c.client.Resource(pages).Namespace(page.GetNamespace()).
		UpdateStatus(context.Background(), page, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // its next version is on its way
	}
	return err
}

func main() {
	name := flag.String("name", os.Getenv("POD_NAME"), "of this shard")
	namespace := flag.String("namespace", os.Getenv("NAMESPACE"), "of its Lease")
	takes := flag.Duration("takes", 0, "how long each reconcile takes")
	flag.Parse()
	log.SetOutput(os.Stdout)
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	us := &shard{ring: "pages", name: *name, namespace: *namespace, client: kubernetes.NewForConfigOrDie(config)}
	it := &controller{name: *name, takes: *takes, client: dynamic.NewForConfigOrDie(config)}
	if err := us.run(ctx, it.work); err != nil {
		log.Fatal(err)
	}
	log.Print("stopped")
}
