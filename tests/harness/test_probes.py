import torch
from torch.nn.functional import scaled_dot_product_attention

from attnbench.harness.probes import counted_work


def test_work_of_a_matrix_product_is_its_flops_and_the_elements_it_writes():
    a, b = torch.ones(2, 3), torch.ones(3, 4)
    # 2 * 2 * 3 * 4 = 48 flops, 8 elements
    assert counted_work(lambda: a @ b) == 48 + 8


def test_work_of_an_elementwise_operation_is_what_it_writes_also_in_place():
    a = torch.ones(2, 3)
    assert counted_work(lambda: a + 1) == 6
    assert counted_work(lambda: a.add_(1)) == 6


def test_views_are_no_work():
    a = torch.ones(2, 3)
    assert counted_work(lambda: (a.T, a[1:], a.unbind(0), a.split(1, dim=1), a.expand(4, 2, 3))) == 0


def test_work_of_a_triangular_solve_is_counted():
    system, right = torch.eye(3).expand(5, 3, 3), torch.ones(5, 3, 2)
    # 3^2 flops for each of 5 * 2 right-hand sides, 30 elements
    assert counted_work(lambda: torch.linalg.solve_triangular(system, right, upper=False)) == 90 + 30


def test_work_of_fused_attention_on_the_cpu_is_counted_forward_and_backward():
    q, k, v = (torch.ones(1, 1, 2, 4, requires_grad=True) for _ in "qkv")
    # q k^T and weights v: 2 products of 2 * 2 * 2 * 4 = 32 flops; o has 8 elements, its log-sum-exp 2
    forward = counted_work(lambda: scaled_dot_product_attention(q, k, v, is_causal=True))
    assert forward == 64 + 10
    # sum writes 1 element, its gradient is 1 element and a view of it; 5 products of 32 flops; q, k, v have 24 elements
    both = counted_work(lambda: scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward())
    assert both == 64 + 10 + 1 + 1 + 160 + 24


def test_a_gradient_by_index_is_seen_to_be_quadratic():
    # the backward of x[t] writes a tensor as long as x: n of them, and n - 1 sums of two
    def total(n: int) -> int:
        x = torch.ones(n, requires_grad=True)
        return counted_work(lambda: torch.stack([x[t] for t in range(n)]).sum().backward())

    assert total(20) > 3 * total(10)
