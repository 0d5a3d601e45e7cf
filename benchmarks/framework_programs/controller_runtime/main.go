// Fills a controller-runtime cache with all Gauges when it gets SIGUSR1.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
)

type Gauge struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Value int64  `json:"value"`
		Text  string `json:"text"`
	} `json:"spec"`
	Status struct {
		Seen *int64 `json:"seen,omitempty"`
	} `json:"status,omitempty"`
}

type GaugeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gauge `json:"items"`
}

func (g *Gauge) DeepCopyObject() runtime.Object     { copied := *g; return &copied }
func (l *GaugeList) DeepCopyObject() runtime.Object { copied := *l; return &copied }

func main() {
	ctrl.SetLogger(klog.NewKlogr())
	scheme, version := runtime.NewScheme(), schema.GroupVersion{Group: "bench.kubeshard.dev", Version: "v1"}
	scheme.AddKnownTypes(version, &Gauge{}, &GaugeList{})
	metav1.AddToGroupVersion(scheme, version)
	objects, err := crcache.New(ctrl.GetConfigOrDie(), crcache.Options{Scheme: scheme})
	if err != nil {
		panic(err)
	}
	begin := make(chan os.Signal, 1)
	signal.Notify(begin, syscall.SIGUSR1)
	fmt.Println("ready")
	<-begin
	ctx := context.Background()
	go func() { _ = objects.Start(ctx) }()
	informer, err := objects.GetInformer(ctx, &Gauge{})
	if err != nil || !objects.WaitForCacheSync(ctx) {
		panic(err)
	}
	fmt.Println("synced", len(informer.(cache.SharedIndexInformer).GetStore().ListKeys()))
	select {}
}
